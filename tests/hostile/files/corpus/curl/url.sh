curl 'http://[/v1/completions' -d '{}'

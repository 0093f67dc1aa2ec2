module github.com/Venafi/vcert/v5

go 1.26.0

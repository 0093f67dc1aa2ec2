// SPDX-License-Identifier: Apache-2.0

// Command probe is the program of the pods in end-to-end tests: a small HTTP server, and clients
// that check the network from inside a pod. It does not know Kubernetes.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: probe COMMAND [ARG]
  serve [ADDRESS]   serve HTTP on ADDRESS (default :8080): /hostname, /fetch?url=URL, /echo, /
  get URL           print the response of URL; fails unless the status is 2xx
  resolve NAME      print the addresses of NAME, one per line
  hostname          print this machine's name
  cat FILE...       print files
  env [NAME]        print the environment, or one variable
  sleep DURATION    sleep, such as 10s or 1h
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	args := append(os.Args[1:], "", "")
	err := runCommand(ctx, args[0], args[1], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, command, arg string, out io.Writer) error {
	switch command {
	case "", "serve":
		return serveHTTP(ctx, arg, out)
	case "get":
		return fetchURL(ctx, arg, out)
	case "resolve":
		addresses, err := net.DefaultResolver.LookupHost(ctx, arg)
		if err != nil {
			return err
		}

		slices.Sort(addresses)
		_, err = fmt.Fprintln(out, strings.Join(addresses, "\n"))
		return err
	case "hostname":
		name, err := os.Hostname()
		if err != nil {
			return err
		}

		_, err = fmt.Fprintln(out, name)
		return err
	case "cat":
		return printFiles(os.Args[2:], out)
	case "env":
		return printEnvironment(arg, out)
	case "sleep":
		return sleepFor(ctx, arg)
	case "--version", "version":
		_, err := fmt.Fprintln(out, "probe (slipway)")
		return err
	}

	_, err := fmt.Fprint(out, usage)
	if command == "help" || command == "--help" || err != nil {
		return err
	}

	return fmt.Errorf("unknown command %q", command)
}

func serveHTTP(ctx context.Context, address string, out io.Writer) error {
	if address == "" {
		address = ":8080"
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, r *http.Request) {
		writeFailure(w, runCommand(r.Context(), "hostname", "", w))
	})
	mux.HandleFunc("/fetch", func(w http.ResponseWriter, r *http.Request) {
		writeFailure(w, fetchURL(r.Context(), r.FormValue("url"), w))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s from %s\n", r.Method, r.URL, r.RemoteAddr)
		_, err := io.Copy(w, r.Body)
		writeFailure(w, err)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Addr: address, Handler: logRequests(mux, out), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	fmt.Fprintln(out, "probe: listening on", address)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.Background())
	}
}

// logRequests prints each request before it is served.
func logRequests(next http.Handler, out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(out, r.RemoteAddr, r.Method, r.URL)
		next.ServeHTTP(w, r)
	})
}

// writeFailure sends 502 with the error, if there is one.
func writeFailure(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func fetchURL(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}

	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}

	if response.StatusCode/100 != 2 {
		return fmt.Errorf("get %s: %s: %s", url, response.Status, body)
	}

	_, err = out.Write(body)
	return err
}

func printFiles(files []string, out io.Writer) error {
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}

		if _, err := out.Write(raw); err != nil {
			return err
		}
	}

	return nil
}

func printEnvironment(name string, out io.Writer) error {
	if name != "" {
		_, err := fmt.Fprintln(out, os.Getenv(name))
		return err
	}

	lines := os.Environ()
	slices.Sort(lines)
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

func sleepFor(ctx context.Context, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}

	select {
	case <-time.After(d):
	case <-ctx.Done():
	}

	return nil
}

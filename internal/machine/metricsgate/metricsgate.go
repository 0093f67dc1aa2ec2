// SPDX-License-Identifier: Apache-2.0

// Package metricsgate lets Prometheus read metrics that programs of a machine serve on the machine
// itself only: those of etcd, of Slipway's agent, of the scheduler, the controller manager,
// kube-proxy and the node exporter.
//
// A [Gate] answers GET /metrics/NAME with the metrics of one of its sources, over TLS, to whom the
// API server knows by a token with the gate's audience (TokenReview), and allows to get that path
// (SubjectAccessReview). Tokens that the API server has not signed are refused without a question.
// It forwards nothing else: neither paths, nor methods, nor the caller's token. Its sources are on
// the loopback address, so it is no way to anything else. It runs as a pod without privileges in
// the network of the machine; [Main] is the program.
package metricsgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// pathPrefix precedes the name of a source.
	pathPrefix = "/metrics/"
	// sourceTimeout limits the answer of a source.
	sourceTimeout = 10 * time.Second
	// sourceLimit is the most bytes of a source that are passed on.
	sourceLimit = 64 << 20
)

// Source is where metrics are read.
type Source struct {
	// Name is the last part of the path at the gate.
	Name string
	// URL is on the loopback address.
	URL string
}

// ParseSource parses NAME=URL. The URL must be on the loopback address, without credentials.
func ParseSource(text string) (Source, error) {
	name, address, found := strings.Cut(text, "=")
	if !found || name == "" || strings.ContainsAny(name, "/?#% ") {
		return Source{}, fmt.Errorf(
			"source %q: want NAME=URL, such as etcd=http://127.0.0.1:2381/metrics",
			text,
		)
	}

	parsed, err := url.Parse(address)
	if err != nil {
		return Source{}, fmt.Errorf("source %q: %w", text, err)
	}

	ip := net.ParseIP(parsed.Hostname())
	if ip == nil || !ip.IsLoopback() {
		return Source{}, fmt.Errorf(
			"source %q: the host must be 127.0.0.1 or [::1]: the gate is for metrics of its machine",
			text,
		)
	}

	if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.User != nil {
		return Source{}, fmt.Errorf("source %q: want http or https, without credentials", text)
	}

	return Source{Name: name, URL: address}, nil
}

// Gate is the handler. It is safe for concurrent use.
type Gate struct {
	// Sources by name.
	Sources map[string]Source
	// Reviews decides who may read.
	Reviews *Reviewer
	// Client asks the sources. It must neither follow redirects nor decompress answers; see
	// [NewSourceClient].
	Client *http.Client
	// Token returns the gate's own token, for sources with https, which ask the API server
	// themselves: the scheduler and the controller manager.
	Token func() (string, error)
	// Log receives failures of sources and of the API server. It gets no tokens.
	Log *slog.Logger
}

// ServeHTTP answers GET /healthz to everybody, and GET /metrics/NAME to those who may read it.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		_, _ = io.WriteString(w, "ok\n") // who asked has gone
		return
	}

	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}

	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		http.Error(w, "a bearer token is missing", http.StatusUnauthorized)
		return
	}

	if err := g.Reviews.Check(r.Context(), token, r.URL.Path); err != nil {
		g.refuse(w, err)
		return
	}

	source, found := g.Sources[strings.TrimPrefix(r.URL.Path, pathPrefix)]
	if !found || r.URL.Path != pathPrefix+source.Name {
		http.NotFound(w, r)
		return
	}

	if err := g.pass(w, r, source); err != nil {
		g.Log.Warn("cannot pass on metrics", slog.String("source", source.Name), slog.Any("error", err))
	}
}

// refuse answers a caller who may not read, or of whom it is not known.
func (g *Gate) refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrUnknownCaller):
		http.Error(w, "the token is not valid here", http.StatusUnauthorized)
	case errors.Is(err, ErrForbidden):
		http.Error(w, "not allowed", http.StatusForbidden)
	case errors.Is(err, ErrBusy): // not logged: strangers can cause any number
		http.Error(w, "too many callers wait for the API server", http.StatusServiceUnavailable)
	default:
		g.Log.Warn("cannot ask the API server about a caller", slog.Any("error", err))
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
	}
}

// pass writes the answer of a source. An error before the first byte is also an answer.
func (g *Gate) pass(w http.ResponseWriter, r *http.Request, source Source) error {
	ctx, cancel := context.WithTimeout(r.Context(), sourceTimeout)
	defer cancel()

	answer, err := g.ask(ctx, r, source)
	if err != nil {
		http.Error(w, "the source does not answer", http.StatusBadGateway)
		return err
	}

	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		http.Error(w, "the source has no metrics", http.StatusBadGateway)
		return fmt.Errorf("%s: status %s", source.URL, answer.Status)
	}

	for _, name := range []string{"Content-Type", "Content-Encoding"} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}

	_, err = io.Copy(w, io.LimitReader(answer.Body, sourceLimit))

	return err
}

// ask sends the request to a source. Of the caller's headers only those that choose the format are
// passed on.
func (g *Gate) ask(ctx context.Context, r *http.Request, source Source) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, source.URL, nil)
	if err != nil {
		return nil, err
	}

	for _, name := range []string{"Accept", "Accept-Encoding"} {
		if value := r.Header.Get(name); value != "" {
			request.Header.Set(name, value)
		}
	}

	if request.URL.Scheme == "https" {
		token, err := g.Token()
		if err != nil {
			return nil, fmt.Errorf("read the gate's own token: %w", err)
		}

		request.Header.Set("Authorization", "Bearer "+token)
	}

	return g.Client.Do(request)
}

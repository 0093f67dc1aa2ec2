// SPDX-License-Identifier: Apache-2.0

// Package imds is the instance metadata service: session tokens (IMDSv2), directories and values over HTTP. It does
// not know what the values are, nor how a request reaches it: both come from its caller.
package imds

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Source is what is known about the instances. It may be called from several goroutines.
//
// Paths are relative to a version and have no slash at either end: "meta-data/instance-id", "user-data",
// "meta-data/iam/security-credentials/role", "dynamic/instance-identity/document".
type Source interface {
	// Instance finds who has a private address in a VPC; ok is false where nobody has it.
	Instance(vpc string, addr netip.Addr) (id string, ok bool)
	// Get returns the value at a path. Where there is none, found is false and err nil; an error becomes a 500.
	Get(instanceID, path string) (value []byte, found bool, err error)
	// Options says whether an instance's requests need a session token, and whether they are answered at all.
	Options(instanceID string) (tokensRequired, enabled bool)
}

// Lister is what a Source has in addition if directories should be listed.
type Lister interface {
	// Paths returns all paths for which Get finds a value, in any order.
	Paths(instanceID string) []string
}

// Options is what the service needs from outside. Source, From and Clock are required.
type Options struct {
	Source Source
	// From finds the VPC and address that a request came from in its context.
	From func(ctx context.Context) (vpc string, addr netip.Addr, ok bool)
	// Clock tells the time.
	Clock func() time.Time
	// Key signs tokens. With the same key tokens survive a restart; empty means a random one.
	Key []byte
	// Log takes errors of the source; nil means silence.
	Log *slog.Logger
}

const (
	tokenPath    = "api/token"
	tokenHeader  = "X-Aws-Ec2-Metadata-Token"             //nolint:gosec // a header's name
	ttlHeader    = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds" //nolint:gosec // a header's name
	maxTokenLife = 21600                                  // seconds, AWS's limit of six hours
)

// versions that clients ask for; all give the same tree. cloud-init tries several and falls back to the first.
func versions() []string {
	return []string{"1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2020-10-27", "2021-03-23", "2021-07-15", "2022-09-24", "latest"}
}

// New returns the handler that serves the metadata of whichever instance asks.
func New(opts Options) (http.Handler, error) {
	if opts.Source == nil || opts.From == nil || opts.Clock == nil {
		return nil, errors.New("metadata service: source, from and clock are required")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if len(opts.Key) == 0 {
		opts.Key = []byte(rand.Text() + rand.Text())
	}
	return &service{opts: opts, tokens: tokens{key: opts.Key}}, nil
}

type service struct {
	opts   Options
	tokens tokens
}

// ServeHTTP answers one request.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "EC2ws")
	vpc, addr, ok := s.opts.From(r.Context())
	if !ok {
		refuse(w, http.StatusForbidden)
		return
	}
	id, ok := s.opts.Source.Instance(vpc, addr)
	if !ok {
		refuse(w, http.StatusNotFound)
		return
	}
	required, enabled := s.opts.Source.Options(id)
	if !enabled {
		refuse(w, http.StatusForbidden)
		return
	}
	if r.Method == http.MethodPut {
		s.issue(w, r, id)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	token := r.Header.Get(tokenHeader)
	if token == "" && required || token != "" && !s.tokens.valid(token, id, s.opts.Clock()) {
		refuse(w, http.StatusUnauthorized)
		return
	}
	s.read(w, r, id)
}

// issue gives a session token. A request that came through a proxy gets none: an open proxy on an instance must not
// hand out its credentials.
func (s *service) issue(w http.ResponseWriter, r *http.Request, id string) {
	version, path := split(r.URL.Path)
	switch {
	case version != "latest" || path != tokenPath:
		refuse(w, http.StatusMethodNotAllowed)
		return
	case len(r.Header.Values("X-Forwarded-For")) > 0:
		refuse(w, http.StatusForbidden)
		return
	}
	ttl, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || ttl < 1 || ttl > maxTokenLife {
		refuse(w, http.StatusBadRequest)
		return
	}
	token := s.tokens.issue(id, s.opts.Clock().Add(time.Duration(ttl)*time.Second))
	w.Header().Set(ttlHeader, strconv.Itoa(ttl))
	s.write(w, r, []byte(token))
}

func (s *service) read(w http.ResponseWriter, r *http.Request, id string) {
	version, path := split(r.URL.Path)
	if version == "" {
		s.write(w, r, []byte(strings.Join(versions(), "\n")))
		return
	}
	if !slices.Contains(versions(), version) {
		refuse(w, http.StatusNotFound)
		return
	}
	value, found, err := s.opts.Source.Get(id, path)
	if err != nil {
		s.opts.Log.LogAttrs(r.Context(), slog.LevelError, "metadata value cannot be read",
			slog.String("instance", id), slog.String("path", path), slog.Any("error", err))
		refuse(w, http.StatusInternalServerError)
		return
	}
	if !found {
		lister, ok := s.opts.Source.(Lister)
		if ok {
			value, found = list(lister.Paths(id), path)
		}
	}
	if !found {
		refuse(w, http.StatusNotFound)
		return
	}
	s.write(w, r, value)
}

// split parts a request's path into its version and the rest, without slashes at the ends.
func split(path string) (version, rest string) {
	version, rest, _ = strings.Cut(strings.Trim(path, "/"), "/")
	return version, strings.Trim(rest, "/")
}

// list renders a directory: one entry a line, no newline at the end, a slash after each that is itself a directory.
// User data is shown beside the directories only where there is some.
func list(paths []string, dir string) ([]byte, bool) {
	var entries []string
	for _, p := range paths {
		rest, below := p, true
		if dir != "" {
			rest, below = strings.CutPrefix(p, dir+"/")
		}
		if !below {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if deeper && dir != "" {
			name += "/"
		}
		entries = append(entries, name)
	}
	slices.Sort(entries)
	return []byte(strings.Join(slices.Compact(entries), "\n")), len(entries) > 0
}

func (s *service) write(w http.ResponseWriter, r *http.Request, value []byte) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	w.Header().Set("Accept-Ranges", "none")
	if r.Method == http.MethodHead {
		return
	}
	_, err := w.Write(value) //nolint:gosec // plain text, said so above
	if err != nil {
		s.opts.Log.LogAttrs(r.Context(), slog.LevelDebug, "metadata client went away", slog.Any("error", err))
	}
}

// refuse answers as EC2 does, with a small page: cloud-init and SDKs look at the status only.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	title := strconv.Itoa(status) + " - " + cmp.Or(http.StatusText(status), "Error")
	_, _ = w.Write([]byte("<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>" + title +
		"</title></head><body><h1>" + title + "</h1></body></html>\n"))
}

// SPDX-License-Identifier: Apache-2.0

// Package channelsource reads a channel of add-ons from where the control plane follows it: an
// artifact in a container registry, or a Git repository.
//
// A revision is the digest of an artifact or the id of a commit. Its signature is verified, if keys
// are given, before any of its files is read. Everything that a server sends is limited, and
// checked against the hash that names it. The package runs nothing, writes no files and makes no
// request to Kubernetes.
package channelsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/guardedhttp"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// The limits of a revision. What is applied from it is as large as a published channel may be, or
// smaller.
const (
	maxAnswerBytes = 16 << 20 // of one answer of a server
	maxTreeBytes   = 16 << 20 // of all files
	maxFiles       = 2000
)

// Fetcher reads revisions. It may be used by several goroutines.
type Fetcher struct {
	// Proxy returns the proxy of a request. Nil: none.
	Proxy func(*http.Request) (*url.URL, error)
	// Login returns credentials for a private registry in Amazon ECR. Nil: there are none.
	Login func(ctx context.Context, registry ecraddress.Registry) (published.Credentials, error)
	// Allowed are addresses of the machine that may be connected to, and TLS has the settings of
	// connections: for tests.
	Allowed []netip.Prefix
	TLS     *tls.Config
}

// Revision is one state of a source.
type Revision struct {
	// ID is the digest of an artifact, or the id of a commit.
	ID string
	// Created is the time of creation in the artifact or the commit. Zero: it has none.
	Created time.Time
	// Files are the files below the path of the source. Nil if the revision is the one that was known.
	Files Files
}

// Fetch returns the newest revision of a source. If that is the known one, which was verified
// before, it has no files.
func (f Fetcher) Fetch(ctx context.Context, s published.Source, known string) (Revision, error) {
	var revision Revision
	var err error

	switch {
	case s.OCI != "":
		revision, err = f.fetchArtifact(ctx, s, known)
	case s.Git != "":
		revision, err = f.fetchCommit(ctx, s, known)
	default:
		err = errors.New("it is neither an artifact nor a Git repository")
	}

	if err != nil && revision.ID != "" {
		return Revision{}, fmt.Errorf("read %s: revision %s: %w", s, revision.ID, guardedhttp.Cause(err))
	}

	if err != nil {
		return Revision{}, fmt.Errorf("read %s: %w", s, guardedhttp.Cause(err))
	}

	revision.Files = revision.Files.below(s.Path)
	if revision.ID != known && len(revision.Files) == 0 {
		return Revision{}, fmt.Errorf("read %s: revision %s has no files there", s, revision.ID)
	}

	return revision, nil
}

// options returns how the server at a host is asked.
func (f Fetcher) options(host string, plainText bool) guardedhttp.Options {
	return guardedhttp.Options{
		Origin:    host,
		Proxy:     f.Proxy,
		PlainText: plainText,
		MaxBytes:  maxAnswerBytes,
		Allowed:   f.Allowed,
		TLS:       f.TLS,
	}
}

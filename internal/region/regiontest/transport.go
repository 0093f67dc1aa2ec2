// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// HostNames sends requests for host names of AWS to a region, as the resolver of a VPC does.
type HostNames struct{ Region Region }

// RoundTrip implements http.RoundTripper.
func (h HostNames) RoundTrip(q *http.Request) (*http.Response, error) {
	sent := q.Clone(q.Context())
	sent.Host = q.URL.Host
	sent.URL.Scheme = "http"
	sent.URL.Host = strings.TrimPrefix(h.Region.URL, "http://")

	res, err := http.DefaultTransport.RoundTrip(sent)
	if res != nil {
		res.Request = q // addresses in the answer are relative to it
	}

	return res, err
}

// inProcessTransport sends requests to a handler in the same process. As with a real server, a call continues
// when its client has given up.
type inProcessTransport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (d inProcessTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:1"
	if in.Host == "" {
		in.Host = r.URL.Host
	}

	if in.Body == nil {
		in.Body = http.NoBody
	}

	answers := make(chan *http.Response, 1)
	go func() {
		defer close(answers)
		defer func() {
			if v := recover(); v != nil &&
				v != http.ErrAbortHandler { //nolint:errorlint // a panic's value, as net/http compares it
				panic(v)
			}
		}()

		rec := httptest.NewRecorder()
		d.handler.ServeHTTP(rec, in)
		out := rec.Result()
		out.Request = r
		answers <- out
	}()

	select {
	case out, ok := <-answers:
		if !ok {
			return nil, io.ErrUnexpectedEOF // as when a connection ends before the answer
		}

		return out, nil

	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

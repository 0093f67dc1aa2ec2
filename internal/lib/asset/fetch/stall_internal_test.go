// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestStalledDownloadEnds: a server that accepts a request and sends nothing, or stops sending, does not hold up a run.
func TestStalledDownloadEnds(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/half" {
			_, _ = w.Write(make([]byte, 1<<16))
			w.(http.Flusher).Flush()
		}
		<-release
	}))
	defer server.Close()
	defer close(release)
	client := http.Client{Transport: stallTransport{base: http.DefaultTransport, limit: 50 * time.Millisecond}}

	resp, err := client.Get(server.URL + "/nothing")
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, errStalled) {
		t.Errorf("no answer: %v", err)
	}

	resp, err = client.Get(server.URL + "/half")
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !errors.Is(err, errStalled) {
		t.Errorf("half an answer: %v", err)
	}
}

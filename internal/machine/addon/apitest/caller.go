// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Caller sends requests to an API server as one user.
type Caller struct {
	// Client authenticates the user by a certificate, unless Headers does.
	Client *http.Client
	// Server is the URL of the API server.
	Server string
	// Headers of each request, such as a token.
	Headers map[string]string
}

// Patch sends a merge patch. It returns the status and the text of the answer; status 0 is no answer.
func (c Caller) Patch(t *testing.T, path, body string) (int, string) {
	t.Helper()

	return c.Send(t, http.MethodPatch, path, body)
}

// Send sends a request. It returns the status and the text of the answer; status 0 is no answer.
func (c Caller) Send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, c.Server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}

	for k, v := range c.Headers {
		req.Header.Set(k, v)
	}

	resp, err := c.Client.Do(req)
	if err != nil {
		return 0, err.Error() // a busy machine; the caller tries again
	}

	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err.Error()
	}

	return resp.StatusCode, string(text)
}

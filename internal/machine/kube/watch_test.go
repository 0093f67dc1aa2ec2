// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		code  int
		want  string
		fails string
	}{
		"events":  {`{"type":"ADDED","object":{"a":1}}` + "\n" + `{"type":"MODIFIED","object":{"a":2}}` + "\n" + `{"type":"DELETED","object":{"a":3}}`, 200, `{"a":1}{"a":2}`, ""},
		"expired": {`{"type":"ERROR","object":{"code":410}}`, 200, "", "410"},
		"denied":  {`{}`, 403, "", "403"},
		"torn":    {`{"type":"ADDED","object":{"a":1}}{"typ`, 200, `{"a":1}`, "unexpected EOF"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = fmt.Fprint(w, c.body)
		}))
		var got strings.Builder
		err := kube.Client{Server: server.URL, HTTP: server.Client()}.Watch(t.Context(), "/api/v1/nodes?watch=1", func(o json.RawMessage) { got.Write(o) })
		server.Close()
		if got.String() != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %s, %v", name, got.String(), err)
		}
	}
}

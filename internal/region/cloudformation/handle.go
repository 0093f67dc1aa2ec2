// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// handlePath is where wait condition handles take their signals; at AWS it is a presigned URL of S3.
const handlePath = "/cloudformation-waitcondition/"

// handleURL is a new handle: who knows it may signal, so it ends in a secret.
func (s *Service) handleURL(stackID, logical string) string {
	at := base64.RawURLEncoding.EncodeToString([]byte(stackID))
	return strings.TrimSuffix(s.cfg.SignalURL, "/") + handlePath + at + "/" + logical + "?Signature=" + record.Hex(s.cfg.Rand, 32)
}

// Signals answers requests to wait condition handles, which have no signature; false for all others.
func (s *Service) Signals(r *http.Request) (http.Handler, bool) {
	if r.Method != http.MethodPut || !strings.HasPrefix(r.URL.Path, handlePath) {
		return nil, false
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.takeSignal(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	}), true
}

// readSignal reads the signal of a PUT to a handle.
func readSignal(r *http.Request) (signal, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if err != nil {
		return signal{}, invalid("The signal ended early")
	}
	var body struct {
		Status   string
		UniqueID string `json:"UniqueId"` //nolint:tagliatelle // CloudFormation's name
		Data     string
	}
	if err := json.Unmarshal(b, &body); err != nil || body.Status != "SUCCESS" && body.Status != "FAILURE" {
		return signal{}, invalid("The signal needs Status SUCCESS or FAILURE, UniqueId, Reason and Data")
	}
	return signal{ID: body.UniqueID, Success: body.Status == "SUCCESS", Data: body.Data}, nil
}

// takeSignal notes what a PUT to a handle says for every wait condition that uses the handle.
func (s *Service) takeSignal(r *http.Request) error {
	encoded, logical, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, handlePath), "/")
	id, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return invalid("The handle is not known")
	}
	sig, err := readSignal(r)
	if err != nil {
		return err
	}
	return s.book.Do(func() error {
		st := s.st.Stacks[string(id)]
		if st == nil || st.Resources[logical] == nil || !sameHandle(st.Resources[logical].Physical, r.URL) {
			return invalid("The handle is not known")
		}
		for _, name := range record.Keys(st.Resources) {
			c := st.Resources[name]
			if c.Type == "AWS::CloudFormation::WaitCondition" && c.Properties["Handle"] == st.Resources[logical].Physical && strings.HasSuffix(c.Status, inProgress) {
				s.signal(st, c, sig)
			}
		}
		return nil
	})
}

// sameHandle compares a handle with the URL of a request, which does not tell its host.
func sameHandle(handle string, u *url.URL) bool {
	h, err := url.Parse(handle)
	return err == nil && h.Path == u.Path && h.RawQuery == u.RawQuery
}

// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// signalPath is the path of the URLs of wait condition handles. At AWS they are presigned URLs of S3.
const signalPath = "/cloudformation-waitcondition/"

// newSignalURL returns the URL of a new wait condition handle. It contains a secret: a client that has the
// URL may signal.
func (s signalHandlers) newSignalURL(stackID, logical string) string {
	at := base64.RawURLEncoding.EncodeToString([]byte(stackID))
	return strings.TrimSuffix(
		s.cfg.SignalURL,
		"/",
	) + signalPath + at + "/" + logical + "?Signature=" + sdkshape.RandomHex(
		s.cfg.Rand,
		32,
	)
}

// SignalHandler returns the handler of a request to a wait condition handle or of the answer of a custom resource, which
// have no signature; false for all other requests.
func (s *Service) SignalHandler(r *http.Request) (http.Handler, bool) {
	if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, responsePath) {
		return http.HandlerFunc(s.receiveResponse), true
	}

	if r.Method != http.MethodPut || !strings.HasPrefix(r.URL.Path, signalPath) {
		return nil, false
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := signalHandlers{s}.receiveSignal(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	}), true
}

// readSignal reads the signal from a request to a handle.
func readSignal(r *http.Request) (resourceSignal, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if err != nil {
		return resourceSignal{}, template.ValidationError("The signal ended early")
	}

	var body struct {
		Status   string
		UniqueID string `json:"UniqueId"`
		Data     string
	}
	if err := json.Unmarshal(b, &body); err != nil || body.Status != "SUCCESS" && body.Status != "FAILURE" {
		return resourceSignal{}, template.ValidationError(
			"The signal needs Status SUCCESS or FAILURE, UniqueId, Reason and Data",
		)
	}

	return resourceSignal{ID: body.UniqueID, Success: body.Status == "SUCCESS", Data: body.Data}, nil
}

// receiveSignal records a signal for every wait condition of the handle.
func (s signalHandlers) receiveSignal(r *http.Request) error {
	encoded, logical, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, signalPath), "/")
	id, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return template.ValidationError("The handle is not known")
	}

	sig, err := readSignal(r)
	if err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		st := s.state.Stacks[string(id)]
		if st == nil || st.Resources[logical] == nil ||
			!matchesHandle(st.Resources[logical].Physical, r.URL) {
			return template.ValidationError("The handle is not known")
		}

		for _, name := range sdkshape.SortedKeys(st.Resources) {
			c := st.Resources[name]
			if c.Type == "AWS::CloudFormation::WaitCondition" &&
				c.Properties["Handle"] == st.Resources[logical].Physical &&
				strings.HasSuffix(c.Status, suffixInProgress) {
				s.addSignal(st, c, sig)
			}
		}

		return nil
	})
}

// matchesHandle reports whether a request is to a handle. The request does not contain the host.
func matchesHandle(handle string, u *url.URL) bool {
	h, err := url.Parse(handle)
	return err == nil && h.Path == u.Path && h.RawQuery == u.RawQuery
}

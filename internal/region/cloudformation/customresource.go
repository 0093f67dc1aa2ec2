// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// responsePath is the path of the URLs for the answers of custom resources. At AWS they are presigned URLs of S3.
const responsePath = "/cloudformation-custom-resource-response/"

// maxResponseBytes is the largest answer of a custom resource (CloudFormation user guide, "Custom resource request and
// response reference").
const maxResponseBytes = 4096

// customResponses are the answers that this process waits for, by the secret in their URL.
type customResponses struct {
	mu      sync.Mutex
	waiting map[string]chan resourcetype.CustomResponse
}

// AwaitResponse implements [resourcetype.CustomResources].
func (e resourceEngine) AwaitResponse(
	ctx context.Context,
	limit time.Duration,
	send func(url string) error,
) (resourcetype.CustomResponse, error) {
	secret := sdkshape.RandomHex(e.service.cfg.Rand, 32)
	answer := make(chan resourcetype.CustomResponse, 1)
	r := &e.service.responses
	r.mu.Lock()
	if r.waiting == nil {
		r.waiting = map[string]chan resourcetype.CustomResponse{}
	}

	r.waiting[secret] = answer
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, secret)
	}()

	if err := send(strings.TrimSuffix(e.service.cfg.Endpoint(), "/") + responsePath + secret); err != nil {
		return resourcetype.CustomResponse{}, err
	}

	timer := time.NewTimer(limit)
	defer timer.Stop()

	select {
	case out := <-answer:
		return out, nil
	case <-timer.C:
		return resourcetype.CustomResponse{}, resourcetype.ErrWaitTimeout
	case <-ctx.Done():
		return resourcetype.CustomResponse{}, context.Cause(ctx)
	}
}

// receiveResponse takes the answer of a custom resource. As with a presigned URL, an answer must not have a content type.
func (s *Service) receiveResponse(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != "" {
		http.Error(w, "SignatureDoesNotMatch: the URL is for a request without Content-Type", http.StatusForbidden)
		return
	}

	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponseBytes+1))
	var answer resourcetype.CustomResponse
	if err != nil || len(body) > maxResponseBytes || json.Unmarshal(body, &answer) != nil {
		http.Error(w, "the answer is not valid JSON of up to 4096 bytes", http.StatusBadRequest)
		return
	}

	s.responses.mu.Lock()
	to := s.responses.waiting[strings.TrimPrefix(r.URL.Path, responsePath)]
	s.responses.mu.Unlock()
	if to == nil {
		http.Error(w, "AccessDenied: nobody waits for this answer", http.StatusForbidden)
		return
	}

	select {
	case to <- answer:
	default: // the second answer to a request is ignored
	}
}

// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// silentFunction is an engine whose functions never answer.
type silentFunction struct {
	Engine
	waited time.Duration
}

func (*silentFunction) RandomHex(n int) string { return strings.Repeat("a", n) }

func (s *silentFunction) AwaitResponse(
	_ context.Context,
	limit time.Duration,
	_ func(url string) error,
) (CustomResponse, error) {
	s.waited = limit
	return CustomResponse{}, ErrWaitTimeout
}

// TestCustomResourceWithoutAnswer: the reason is CloudFormation's, with the ID of the request that the function logs.
func TestCustomResourceWithoutAnswer(t *testing.T) {
	t.Parallel()
	for limit, properties := range map[time.Duration]template.Object{
		time.Hour:        {},
		10 * time.Minute: {"ServiceTimeout": 600},
	} {
		engine := &silentFunction{}
		_, err := runCustomRequest(t.Context(), &Request{Engine: engine, Properties: properties}, "Delete", template.Object{})
		want := "did not receive a response from your Custom Resource. Please check your logs for requestId [aaaaaaaa-aaaa-"
		if engine.waited != limit || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("waited %s of %s, and answers %v", engine.waited, limit, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// target returns a lifecycle state, or 404 as for an instance outside Auto Scaling groups.
type target string

func (s target) GetMetadata(context.Context, *imds.GetMetadataInput, ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	if s == "" {
		return nil, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusNotFound}}, Err: errors.New("none")}
	}
	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(string(s)))}, nil
}

// TestWarmMachineDoesNotJoin checks that an instance in a warm pool waits and all others continue.
func TestWarmMachineDoesNotJoin(t *testing.T) {
	for state, waits := range map[target]bool{"": false, "InService": false, "Warmed:Stopped": true, "Warmed:Running": true} {
		err := (&Agent{Metadata: state}).checkWarmPool(t.Context())
		if _, got := errors.AsType[notReadyError](err); got != waits || err != nil && !got {
			t.Errorf("%q: %v", state, err)
		}
	}
}

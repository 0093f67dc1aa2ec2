// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// checkWarmPool returns a notReadyError while the instance is in a warm pool. It has all downloads,
// but must not join the cluster before its Auto Scaling group puts it in service.
func (a *Agent) checkWarmPool(ctx context.Context) error {
	out, err := a.Metadata.GetMetadata(
		ctx,
		&imds.GetMetadataInput{Path: "autoscaling/target-lifecycle-state"},
	)
	if e, ok := errors.AsType[*smithyhttp.ResponseError](err); ok &&
		e.HTTPStatusCode() == http.StatusNotFound {
		return nil // the instance is not in an Auto Scaling group
	}

	if err != nil {
		return fmt.Errorf("read instance metadata autoscaling/target-lifecycle-state: %w", err)
	}

	state, err := io.ReadAll(out.Content)
	if err != nil {
		return fmt.Errorf("read instance metadata autoscaling/target-lifecycle-state: %w", err)
	}

	if strings.HasPrefix(string(state), "Warmed:") {
		return newNotReadyError("in the warm pool, to be %s", strings.TrimSpace(string(state)))
	}

	return nil
}

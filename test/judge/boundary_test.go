// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"errors"
	"path"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
)

// createBoundary creates the permissions boundary that 'slipway state init' creates, if it does not exist.
func (d directJudge) createBoundary(t *testing.T) {
	t.Helper()
	_, err := iam.NewFromConfig(d.cfg).CreatePolicy(t.Context(), &iam.CreatePolicyInput{
		Path:           sdk.String("/slipway/"),
		PolicyName:     sdk.String(path.Base(rendertest.Boundary)),
		PolicyDocument: sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`),
	})
	if exists := new(iamtypes.EntityAlreadyExistsException); !errors.As(err, &exists) {
		failOnError(t, err)
	}
}

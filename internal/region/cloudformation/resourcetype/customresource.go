// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// CustomResponse is what a function answers to the request of a custom resource (CloudFormation user guide, "Custom
// resource request and response reference").
type CustomResponse struct {
	Status             string // SUCCESS or FAILED
	Reason             string // of a failure
	PhysicalResourceID string `json:"PhysicalResourceId"`
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
}

// CustomResources waits for the answers of functions.
type CustomResources interface {
	// AwaitResponse calls send with the URL for the answer to a request, and waits for the answer up to limit.
	AwaitResponse(ctx context.Context, limit time.Duration, send func(url string) error) (CustomResponse, error)
}

// defaultServiceTimeout is how long CloudFormation waits for a custom resource.
const defaultServiceTimeout = time.Hour

// customResourceTypes are the types of resources that functions provide. Their attributes are not implemented.
func customResourceTypes() map[string]Type {
	return map[string]Type{
		"AWS::CloudFormation::CustomResource": {
			Create: func(ctx context.Context, req *Request) error {
				id, err := runCustomRequest(ctx, req, "Create", template.Object{})
				if err != nil {
					return err
				}

				return req.setPhysicalID(ctx, id)
			},
			Update: func(ctx context.Context, req *Request) error {
				id, err := runCustomRequest(ctx, req, "Update", template.Object{
					"PhysicalResourceId":    req.PhysicalID,
					"OldResourceProperties": textValues(req.OldProperties),
				})
				if err == nil && id != req.PhysicalID {
					return fmt.Errorf(
						"this region does not replace custom resources: the ID of %s became %s",
						req.PhysicalID,
						id,
					)
				}

				return err
			},
			Delete: func(ctx context.Context, req *Request) error {
				in := template.Object{"PhysicalResourceId": req.PhysicalID}
				_, err := runCustomRequest(ctx, req, "Delete", in)

				return err
			},
			FindCreated: func(context.Context, *Request) (bool, error) { return false, nil }, // asked again
		},
	}
}

// runCustomRequest asks the function of a custom resource, and returns the physical ID that it answers.
func runCustomRequest(ctx context.Context, req *Request, kind string, more template.Object) (string, error) {
	limit := time.Duration(template.IntOr(req.Properties["ServiceTimeout"], 0)) * time.Second
	if limit == 0 {
		limit = defaultServiceTimeout
	}

	id := newCallerReference(req)
	answer, err := req.Engine.AwaitResponse(ctx, limit, func(url string) error {
		request := template.Object{
			"RequestType":        kind,
			"ResponseURL":        url,
			"StackId":            req.StackID,
			"RequestId":          id,
			"ResourceType":       req.TypeName,
			"LogicalResourceId":  req.LogicalID,
			"ResourceProperties": textValues(req.Properties),
		}
		maps.Copy(request, more)

		payload, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("encode the request of custom resource %s: %w", req.LogicalID, err)
		}

		return req.runOperation(ctx, "lambda", "Invoke", template.Object{
			"FunctionName":   req.Properties["ServiceToken"],
			"InvocationType": "Event",
			"Payload":        payload,
		})
	})
	if errors.Is(err, ErrWaitTimeout) {
		return "", fmt.Errorf(
			"CloudFormation did not receive a response from your Custom Resource. "+
				"Please check your logs for requestId [%s]. If you are using the Python cfn-response module, "+
				"you may need to update your Lambda function code so that CloudFormation can attach the updated version.",
			id,
		)
	}

	if err != nil {
		return "", err
	}

	return checkCustomResponse(req, id, answer)
}

// checkCustomResponse returns the physical ID of an answer, or the reason of its failure.
func checkCustomResponse(req *Request, id string, answer CustomResponse) (string, error) {
	switch {
	case answer.StackID != req.StackID || answer.RequestID != id || answer.LogicalResourceID != req.LogicalID:
		return "", template.ValidationError(
			"Invalid response from custom resource: its StackId, RequestId or LogicalResourceId is another one",
		)
	case answer.Status != "SUCCESS":
		return "", fmt.Errorf(
			"Received response status [%s] from custom resource. Message returned: %s (RequestId: %s)",
			answer.Status,
			answer.Reason,
			id,
		)
	case answer.PhysicalResourceID == "" || len(answer.PhysicalResourceID) > 1024:
		return "", template.ValidationError("Invalid PhysicalResourceId")
	}

	return answer.PhysicalResourceID, nil
}

// textValues returns a value in which each number and boolean is a string, as CloudFormation passes properties.
func textValues(v any) any {
	switch v := v.(type) {
	case template.Object:
		out := template.Object{}
		for k, e := range v {
			out[k] = textValues(e)
		}

		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, textValues(e))
		}

		return out
	}

	if text, ok := template.ScalarText(v); ok {
		return strings.Clone(text)
	}

	return v
}

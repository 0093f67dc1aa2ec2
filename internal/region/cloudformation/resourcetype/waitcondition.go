// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"encoding/json"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// waitConditionTypes are the types of CloudFormation itself.
func waitConditionTypes() map[string]Type {
	return map[string]Type{
		"AWS::CloudFormation::WaitConditionHandle": {
			Create: func(ctx context.Context, req *Request) error {
				return req.setPhysicalID(ctx, req.Engine.NewSignalURL(req))
			},
			Update: func(context.Context, *Request) error { return nil },
			Delete: func(context.Context, *Request) error { return nil },
		},
		"AWS::CloudFormation::WaitCondition": {
			CountsOwnSignals: true,
			Create: func(ctx context.Context, req *Request) error {
				return req.setPhysicalID(ctx, req.StackID+"/"+req.LogicalID)
			},
			Stabilize: waitForCondition,
			Delete:    func(context.Context, *Request) error { return nil },
		},
	}
}

// waitForCondition waits for the number of signals that a wait condition sets. They come to its handle, or by
// SignalResource.
func waitForCondition(ctx context.Context, req *Request) error {
	wait, ok, err := ParseCreationPolicy(req.Policy)
	if err != nil {
		return err
	}

	if ok {
		return req.Engine.WaitForSignals(ctx, req, wait)
	}

	wait = SignalWait{
		Count:             template.IntOr(req.Properties["Count"], 1),
		MinSuccessPercent: 100,
		Timeout:           time.Duration(template.IntOr(req.Properties["Timeout"], 300)) * time.Second,
	}
	if err := req.Engine.WaitForSignals(ctx, req, wait); err != nil {
		return err
	}

	b, err := json.Marshal(req.Engine.SignalData(req))
	req.Attributes["Data"] = string(b)

	return err
}

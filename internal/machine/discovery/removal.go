// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// PlanRemoval returns the changes that delete all records that the package owns.
func PlanRemoval(cluster string, present []Record) []Change {
	var out []Change
	for _, r := range present {
		if owns(cluster, r) {
			out = append(out, Change{Delete: true, Record: r})
		}
	}

	return out
}

// Remove deletes all records that the function owns. A zone that does not exist has none. It is part of the deletion of
// the zone, which must be empty for that.
func (f Function) Remove(ctx context.Context) (Result, error) {
	var result Result
	var conflict error
	for range maxRounds {
		present, err := f.listRecords(ctx)
		if e, ok := errors.AsType[smithy.APIError](err); ok && e.ErrorCode() == "NoSuchHostedZone" {
			return result, nil
		}

		if err != nil {
			return result, err
		}

		changes := PlanRemoval(f.Cluster, present)
		if len(changes) == 0 {
			return result, nil
		}

		conflict = f.changeRecords(ctx, changes)
		if conflict == nil {
			result.Changes += len(changes)
			continue
		}

		if !isConflict(conflict) {
			return result, conflict
		}
	}

	if conflict != nil {
		return result, conflict
	}

	return result, fmt.Errorf("zone %s has records again after %d removals of them", f.Zone, maxRounds)
}

// callback is what CloudFormation adds to the event of a custom resource, to get an answer.
type callback struct {
	ResponseURL       string
	StackID           string `json:"StackId"`
	RequestID         string `json:"RequestId"`
	LogicalResourceID string `json:"LogicalResourceId"`
}

// answer is the answer to the request of a custom resource.
type answer struct {
	Status             string
	Reason             string
	PhysicalResourceID string `json:"PhysicalResourceId"`
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
}

// respond tells CloudFormation how the request of a custom resource ended. The physical id is constant, so that an update
// never replaces the resource.
func (f Function) respond(ctx context.Context, to callback, failure error) error {
	a := answer{
		Status:             "SUCCESS",
		Reason:             "see the log group of the function",
		PhysicalResourceID: "records." + v1alpha1.EtcdZone(f.Cluster),
		StackID:            to.StackID,
		RequestID:          to.RequestID,
		LogicalResourceID:  to.LogicalResourceID,
	}
	if failure != nil {
		a.Status = "FAILED"
		a.Reason = shorten(failure.Error())
	}

	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the answer to CloudFormation: %w", err)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to.ResponseURL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}

	res, err := f.HTTP.Do(req) // without a content type: the URL is signed for none
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}

	defer func() { _ = res.Body.Close() }() // it is not read
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("answer CloudFormation: %s", res.Status)
	}

	return nil
}

// maxReason is the length of a reason that fits into an answer, which may have 4096 bytes.
const maxReason = 1000

func shorten(text string) string {
	if len(text) > maxReason {
		return text[:maxReason] + "..."
	}

	return text
}

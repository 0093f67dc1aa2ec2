// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// signalHandlers serves signals about resources: it records them, and waits for them. Signals come from the
// operation SignalResource and from the URLs of wait condition handles.
type signalHandlers struct{ *Service }

func (s signalHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "SignalResource", s.signalResource),
	}
}

var errTooFewSignals = errors.New("not enough signals") // waitForSignals replaces it by a message with numbers

// waitForSignals waits for signals about a resource.
func (s signalHandlers) waitForSignals(
	ctx context.Context,
	req *resourcetype.Request,
	w resourcetype.SignalWait,
) error {
	if w.Count <= 0 {
		return nil
	}

	err := s.store.Update(func() error {
		s.state.findResource(req).WaitingForSignals = true
		return nil
	})
	if err != nil {
		return err
	}

	needed := int(math.Ceil(float64(w.Count) * float64(w.MinSuccessPercent) / 100))
	var good, bad int
	err = s.pollUntil(ctx, w.Timeout, func() (bool, error) {
		good, bad = s.countSignals(req)
		if bad > w.Count-needed {
			return false, errTooFewSignals
		}

		return good >= needed && good+bad >= w.Count, nil
	})

	switch tooLong := errors.Is(err, resourcetype.ErrWaitTimeout); {
	case errors.Is(err, errTooFewSignals):
		return fmt.Errorf(
			"Received %d FAILURE signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement",
			bad,
			w.Count,
			w.MinSuccessPercent,
		)

	case tooLong && good >= needed:
		return nil
	case tooLong && req.TypeName == resourcetype.AutoScalingGroupTypeName:
		return fmt.Errorf(
			"Received %d SUCCESS signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement",
			good,
			w.Count,
			w.MinSuccessPercent,
		)

	case tooLong:
		return fmt.Errorf(
			"Failed to receive %d resource signal(s) within the specified duration",
			w.Count-good,
		)
	}

	return err
}

// countSignals counts the signals about a resource that report success, and those that report failure.
func (s signalHandlers) countSignals(req *resourcetype.Request) (good, bad int) {
	s.store.View(func() {
		for _, sig := range s.state.findResource(req).Signals {
			if sig.Success {
				good++
			} else {
				bad++
			}
		}
	})

	return good, bad
}

// signalResource records a signal of the operation SignalResource.
func (s signalHandlers) signalResource(in *sdk.SignalResourceInput) (*sdk.SignalResourceOutput, error) {
	st, err := s.state.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	name := sdkshape.String(in.LogicalResourceId)
	r := st.Resources[name]
	if r == nil {
		return nil, template.ValidationError("Resource %s does not exist for stack %s", name, st.Name)
	}

	if r.Status != "CREATE"+suffixInProgress && r.Status != "UPDATE"+suffixInProgress {
		return nil, template.ValidationError(
			"Resource %s is in %s state and cannot be signaled",
			name,
			r.Status,
		)
	}

	status := sdkshape.String(in.Status)
	if status != sdk.ResourceSignalStatusSuccess && status != sdk.ResourceSignalStatusFailure {
		return nil, template.ValidationError(
			"1 validation error detected: Value '%s' at 'status' failed to satisfy constraint: Member must satisfy enum value set: [SUCCESS, FAILURE]",
			status,
		)
	}

	s.addSignal(
		st,
		r,
		resourceSignal{ID: sdkshape.String(in.UniqueId), Success: status == sdk.ResourceSignalStatusSuccess},
	)

	return &sdk.SignalResourceOutput{}, nil
}

// addSignal records a signal, once for each sender. The caller holds the store's lock.
func (s signalHandlers) addSignal(st *stack, r *resource, sig resourceSignal) {
	if slices.ContainsFunc(r.Signals, func(o resourceSignal) bool { return o.ID == sig.ID }) {
		return
	}

	r.Signals = append(r.Signals, sig)
	what := map[bool]string{true: "SUCCESS", false: "FAILURE"}[sig.Success]
	s.addEvent(st, stackEvent{
		Logical:  r.Logical,
		Physical: r.Physical,
		Type:     r.Type,
		Status:   r.Status,
		Reason:   strings.TrimSpace("Received " + what + " signal with UniqueId " + sig.ID),
	})
}

// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// parseISODuration reads what ISO 8601 calls PT1H30M; otherwise is the answer to an empty text.
func parseISODuration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}

	m := regexp.MustCompile(
		`^P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6})(?:\.\d+)?S)?)?$`,
	).FindStringSubmatch(
		text,
	)
	if m == nil || m[0] == "P" || m[0] == "PT" {
		return 0, template.ValidationError("The value %q is no duration such as PT5M", text)
	}

	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi("0" + m[i+1]) // the pattern allows digits only
		d += time.Duration(n) * unit
	}

	return d, nil
}

// signalWait is what a resource waits for.
type signalWait struct {
	count             int
	minSuccessPercent int // of count that must be a success
	timeout           time.Duration
}

// waitForCreationSignals waits as a resource's CreationPolicy says.
func (s *Service) waitForCreationSignals(j *handlerRequest, r *resource) error {
	p, ok := j.policy["ResourceSignal"].(template.Object)
	if !ok {
		return nil
	}

	timeout, err := parseISODuration(template.StringAt(p, "Timeout"), 5*time.Minute)
	if err != nil {
		return err
	}

	w := signalWait{count: intOr(p["Count"], 1), minSuccessPercent: 100, timeout: timeout}
	if auto, ok := j.policy["AutoScalingCreationPolicy"].(template.Object); ok {
		w.minSuccessPercent = intOr(auto["MinSuccessfulInstancesPercent"], 100)
	}

	return s.waitForSignals(j, r, w)
}

func intOr(v any, otherwise int) int {
	t, _ := template.ScalarText(v)
	if n, err := strconv.Atoi(t); err == nil {
		return n
	}

	return otherwise
}

var errTooFewSignals = errors.New("not enough signals") // replaced before anybody sees it

// waitForSignals waits for signals about a resource.
func (s *Service) waitForSignals(j *handlerRequest, r *resource, w signalWait) error {
	if w.count <= 0 {
		return nil
	}

	err := s.store.WithLock(func() error {
		r.WaitingForSignals = true
		s.store.MarkChanged()
		return nil
	})
	if err != nil {
		return err
	}

	needed := int(math.Ceil(float64(w.count) * float64(w.minSuccessPercent) / 100))
	var good, bad int
	err = s.pollUntil(j.ctx, w.timeout, func() (bool, error) {
		good, bad = s.countSignals(r)
		if bad > w.count-needed {
			return false, errTooFewSignals
		}

		return good >= needed && good+bad >= w.count, nil
	})

	switch tooLong := errors.Is(err, errWaitTimeout); {
	case errors.Is(err, errTooFewSignals):
		return fmt.Errorf(
			"Received %d FAILURE signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement",
			bad,
			w.count,
			w.minSuccessPercent,
		)

	case tooLong && good >= needed:
		return nil
	case tooLong && j.typeName == autoScalingGroupTypeName:
		return fmt.Errorf(
			"Received %d SUCCESS signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement",
			good,
			w.count,
			w.minSuccessPercent,
		)

	case tooLong:
		return fmt.Errorf(
			"Failed to receive %d resource signal(s) within the specified duration",
			w.count-good,
		)
	}

	return err
}

// countSignals counts a resource's signals.
func (s *Service) countSignals(r *resource) (good, bad int) {
	_ = s.store.WithLock(func() error { // it only reads
		for _, sig := range r.Signals {
			if sig.Success {
				good++
			} else {
				bad++
			}
		}

		return nil
	})

	return good, bad
}

// signalResource notes a signal.
func (s *Service) signalResource(in *sdk.SignalResourceInput) (*sdk.SignalResourceOutput, error) {
	st, err := s.findStack(sdkshape.String(in.StackName))
	if err != nil {
		return nil, err
	}

	name := sdkshape.String(in.LogicalResourceId)
	r := st.Resources[name]
	if r == nil {
		return nil, template.ValidationError("Resource %s does not exist for stack %s", name, st.Name)
	}

	if r.Status != "CREATE"+suffixInProgress && r.Status != "UPDATE"+suffixInProgress {
		return nil, template.ValidationError("Resource %s is in %s state and cannot be signaled", name, r.Status)
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

// addSignal notes a signal, once for each sender. The caller is inside the book.
func (s *Service) addSignal(st *stack, r *resource, sig resourceSignal) {
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

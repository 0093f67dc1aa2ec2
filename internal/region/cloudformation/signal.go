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

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// duration reads what ISO 8601 calls PT1H30M; otherwise is the answer to an empty text.
func duration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	m := regexp.MustCompile(`^P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6})(?:\.\d+)?S)?)?$`).FindStringSubmatch(text)
	if m == nil || m[0] == "P" || m[0] == "PT" {
		return 0, invalid("The value %q is no duration such as PT5M", text)
	}
	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi("0" + m[i+1]) // the pattern allows digits only
		d += time.Duration(n) * unit
	}
	return d, nil
}

// await is what a resource waits for.
type await struct {
	count   int
	percent int // of count that must be a success
	timeout time.Duration
}

// awaitCreation waits as a resource's CreationPolicy says.
func (s *Service) awaitCreation(j *job, r *resource) error {
	p, ok := j.policy["ResourceSignal"].(tree)
	if !ok {
		return nil
	}
	timeout, err := duration(textOf(p, "Timeout"), 5*time.Minute)
	if err != nil {
		return err
	}
	w := await{count: number(p["Count"], 1), percent: 100, timeout: timeout}
	if auto, ok := j.policy["AutoScalingCreationPolicy"].(tree); ok {
		w.percent = number(auto["MinSuccessfulInstancesPercent"], 100)
	}
	return s.await(j, r, w)
}

func number(v any, otherwise int) int {
	t, _ := text(v)
	if n, err := strconv.Atoi(t); err == nil {
		return n
	}
	return otherwise
}

var errSignals = errors.New("not enough signals") // replaced before anybody sees it

// await waits for signals about a resource.
func (s *Service) await(j *job, r *resource, w await) error {
	if w.count <= 0 {
		return nil
	}
	err := s.book.Do(func() error {
		r.Waiting = true
		s.book.Dirty()
		return nil
	})
	if err != nil {
		return err
	}
	needed := int(math.Ceil(float64(w.count) * float64(w.percent) / 100))
	var good, bad int
	err = s.poll(j.ctx, w.timeout, func() (bool, error) {
		good, bad = s.signals(r)
		if bad > w.count-needed {
			return false, errSignals
		}
		return good >= needed && good+bad >= w.count, nil
	})
	switch tooLong := errors.Is(err, errTooLong); {
	case errors.Is(err, errSignals):
		return fmt.Errorf("Received %d FAILURE signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement", bad, w.count, w.percent) //nolint:staticcheck // CloudFormation's words
	case tooLong && good >= needed:
		return nil
	case tooLong && j.kind == groupType:
		return fmt.Errorf("Received %d SUCCESS signal(s) out of %d. Unable to satisfy %d%% MinSuccessfulInstancesPercent requirement", good, w.count, w.percent) //nolint:staticcheck // CloudFormation's words
	case tooLong:
		return fmt.Errorf("Failed to receive %d resource signal(s) within the specified duration", w.count-good) //nolint:staticcheck // CloudFormation's words
	}
	return err
}

// signals counts a resource's signals.
func (s *Service) signals(r *resource) (good, bad int) {
	_ = s.book.Do(func() error { // it only reads
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
	st, err := s.find(record.Str(in.StackName))
	if err != nil {
		return nil, err
	}
	name := record.Str(in.LogicalResourceId)
	r := st.Resources[name]
	if r == nil {
		return nil, invalid("Resource %s does not exist for stack %s", name, st.Name)
	}
	if r.Status != "CREATE"+inProgress && r.Status != "UPDATE"+inProgress {
		return nil, invalid("Resource %s is in %s state and cannot be signaled", name, r.Status)
	}
	status := record.Str(in.Status)
	if status != sdk.ResourceSignalStatusSuccess && status != sdk.ResourceSignalStatusFailure {
		return nil, invalid("1 validation error detected: Value '%s' at 'status' failed to satisfy constraint: Member must satisfy enum value set: [SUCCESS, FAILURE]", status)
	}
	s.signal(st, r, signal{ID: record.Str(in.UniqueId), Success: status == sdk.ResourceSignalStatusSuccess})
	return &sdk.SignalResourceOutput{}, nil
}

// signal notes a signal, once for each sender. The caller is inside the book.
func (s *Service) signal(st *stack, r *resource, sig signal) {
	if slices.ContainsFunc(r.Signals, func(o signal) bool { return o.ID == sig.ID }) {
		return
	}
	r.Signals = append(r.Signals, sig)
	what := map[bool]string{true: "SUCCESS", false: "FAILURE"}[sig.Success]
	s.note(st, event{
		Logical: r.Logical, Physical: r.Physical, Type: r.Type, Status: r.Status,
		Reason: strings.TrimSpace("Received " + what + " signal with UniqueId " + sig.ID),
	})
}

// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// ParseCreationPolicy returns the signals that a resource's CreationPolicy waits for; false if it waits for
// none.
func ParseCreationPolicy(policy template.Object) (SignalWait, bool, error) {
	p, ok := policy["ResourceSignal"].(template.Object)
	if !ok {
		return SignalWait{}, false, nil
	}

	timeout, err := ParseISODuration(template.StringAt(p, "Timeout"), 5*time.Minute)
	if err != nil {
		return SignalWait{}, false, err
	}

	wait := SignalWait{Count: template.IntOr(p["Count"], 1), MinSuccessPercent: 100, Timeout: timeout}
	if auto, ok := policy["AutoScalingCreationPolicy"].(template.Object); ok {
		wait.MinSuccessPercent = template.IntOr(auto["MinSuccessfulInstancesPercent"], 100)
	}

	return wait, true, nil
}

// ParseISODuration parses a duration of ISO 8601 such as PT1H30M. It returns otherwise for an empty text.
func ParseISODuration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}

	m := regexp.MustCompile(
		`^P(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6})(?:\.\d+)?S)?)?$`,
	).FindStringSubmatch(
		text,
	)
	if m == nil || m[0] == "P" || m[0] == "PT" {
		return 0, template.ValidationError("The value %q is not a duration such as PT5M", text)
	}

	var d time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi("0" + m[i+1]) // the pattern allows digits only
		d += time.Duration(n) * unit
	}

	return d, nil
}

// formatISODuration returns a duration as templates write it, such as PT5M0S.
func formatISODuration(d time.Duration) string { return "PT" + strings.ToUpper(d.String()) }

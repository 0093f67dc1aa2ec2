// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// MachineLimit is a number of machines, or a percentage of a group's size. The zero value is 0 machines.
type MachineLimit struct {
	number    int
	percent   int
	isPercent bool
}

// ParseMachineLimit parses a number from 0, or a percentage from 1% to 100%.
func ParseMachineLimit(text v1alpha1.NumberOrPercent) (MachineLimit, error) {
	digits, isPercent := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(digits)

	switch {
	case err != nil || n < 0 || n > maxGroupSize:
		return MachineLimit{}, errors.New("is not a number of machines or a percentage")
	case isPercent && (n < 1 || n > 100):
		return MachineLimit{}, errors.New("is not a percentage from 1% to 100%")
	case isPercent:
		return MachineLimit{percent: n, isPercent: true}, nil
	}

	return MachineLimit{number: n}, nil
}

// RoundDown returns the number of machines in a group of this size: a percentage is rounded down, and is at
// least 1.
func (l MachineLimit) RoundDown(size int) int {
	if l.isPercent {
		return max(1, size*l.percent/100)
	}

	return l.number
}

// RoundUp returns the number of machines in a group of this size: a percentage is rounded up.
func (l MachineLimit) RoundUp(size int) int {
	if l.isPercent {
		return (size*l.percent + 99) / 100
	}

	return l.number
}

const (
	// limitHint is what to write for a number of machines.
	limitHint = "use a number such as 2, or a percentage from 1% to 100%"
	// maxRollingWait limits the durations of a rolling update.
	maxRollingWait = 24 * time.Hour
	// maxGates limits the gates of one document.
	maxGates = 20
)

// checkRollingUpdate checks the settings of a cluster, or of a group of this role.
func (v validator) checkRollingUpdate(u v1alpha1.RollingUpdate, role v1alpha1.Role) {
	if role == v1alpha1.RoleControlPlane {
		v.rejectWorkerLimits(u)
	}

	v.checkMachineLimit("spec.rollingUpdate.maxUnavailable", u.MaxUnavailable)
	surge := v.checkMachineLimit("spec.rollingUpdate.maxSurge", u.MaxSurge)
	v.checkMachineLimit("spec.rollingUpdate.canary", u.Canary)
	if u.MaxUnavailable == "0" && surge == (MachineLimit{}) {
		v.errorf(
			"spec.rollingUpdate.maxUnavailable",
			string(u.MaxUnavailable),
			"set it to 1 or more, or set maxSurge as well",
			"is 0 without maxSurge, so that no machine could be replaced",
		)
	}

	v.checkWait("spec.rollingUpdate.drainTimeout", u.DrainTimeout)
	v.checkWait("spec.rollingUpdate.pauseBetween", u.PauseBetween)
	if u.MaxFailures != 0 {
		v.checkRange("spec.rollingUpdate.maxFailures", u.MaxFailures, 1, maxGroupSize)
	}

	v.checkGates(u.Gates)
}

// rejectWorkerLimits reports limits that have no meaning for a control plane. A maxSurge of 0 has one: no machine prepares
// in advance.
func (v validator) rejectWorkerLimits(u v1alpha1.RollingUpdate) {
	for _, field := range []struct {
		name  string
		value v1alpha1.NumberOrPercent
	}{{"maxUnavailable", u.MaxUnavailable}, {"maxSurge", u.MaxSurge}, {"canary", u.Canary}} {
		if field.name == "maxSurge" && field.value == "0" {
			continue
		}

		if field.value != "" {
			v.errorf(
				"spec.rollingUpdate."+field.name,
				string(field.value),
				"leave it out",
				"is for workers: a control plane is replaced one machine at a time",
			)
		}
	}
}

// checkMachineLimit reports a limit that is not valid. It returns the zero limit for an unset or wrong one.
func (v validator) checkMachineLimit(path string, text v1alpha1.NumberOrPercent) MachineLimit {
	if text == "" {
		return MachineLimit{}
	}

	limit, err := ParseMachineLimit(text)
	if err != nil {
		v.errorf(path, string(text), limitHint, "%s", err)
	}

	return limit
}

// checkWait reports a duration that is not valid.
func (v validator) checkWait(path, text string) {
	if text == "" {
		return
	}

	if d, err := time.ParseDuration(text); err != nil || d < 0 || d > maxRollingWait {
		v.errorf(path, text, "write it as 90s, 15m or 1h, at most 24h", "is not a valid duration")
	}
}

// checkGates checks the user's own gates.
func (v validator) checkGates(gates []v1alpha1.Gate) {
	if len(gates) > maxGates {
		v.errorf(
			"spec.rollingUpdate.gates",
			strconv.Itoa(len(gates)),
			fmt.Sprintf("use at most %d", maxGates),
			"are too many to check before each machine",
		)
	}

	seen := map[string]int{}
	for i, g := range gates {
		at := fmt.Sprintf("spec.rollingUpdate.gates[%d]", i)
		if g.Name == "" {
			v.errorf(at+".name", "", "name the check, for messages", "is not set")
		} else {
			v.checkUnique(at+".name", g.Name, seen, i, "duplicates rollingUpdate.gates[%d]")
		}

		v.checkGate(at, g)
		v.checkWait(at+".timeout", g.Timeout)
	}
}

// checkGate checks what one gate asks for.
func (v validator) checkGate(at string, g v1alpha1.Gate) {
	set := 0
	for _, isSet := range []bool{g.Deployment != "", g.URL != "", len(g.Command) > 0} {
		if isSet {
			set++
		}
	}

	if set != 1 {
		v.errorf(at, g.Name, "set one of deployment, url and command", "sets %d checks instead of one", set)
		return
	}

	switch {
	case g.Deployment != "" && !isNamespacedName(g.Deployment):
		v.errorf(at+".deployment", g.Deployment, "write it as default/web", "is not NAMESPACE/NAME")
	case g.URL != "" && !isWebURL(g.URL):
		v.errorf(at+".url", g.URL, "write it as https://example.com/healthz", "is not an http or https URL")
	case len(g.Command) > 0 && g.Command[0] == "":
		v.errorf(at+".command[0]", "", "name a program", "is empty")
	}
}

// isNamespacedName reports whether text is NAMESPACE/NAME of a Kubernetes object.
func isNamespacedName(text string) bool {
	namespace, name, found := strings.Cut(text, "/")

	return found && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// isWebURL reports whether text is an absolute URL of http or https.
func isWebURL(text string) bool {
	u, err := url.Parse(text)

	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

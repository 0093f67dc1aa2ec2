// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// RollingUpdate configures how 'slipway rolling-update' replaces machines. What a group sets wins over what the
// cluster sets; flags win over both.
type RollingUpdate struct {
	// MaxUnavailable is how many workers of a group may be missing at once because of the update: a
	// number, or a percentage of the group's size such as 10%, rounded down, at least 1. If unset, it
	// is 1, or 0 with maxSurge. Workers only: the control plane is replaced one machine at a time.
	MaxUnavailable NumberOrPercent `json:"maxUnavailable,omitempty"`

	// MaxSurge is how many additional workers of a group may run during the update: a number, or a
	// percentage of the group's size, rounded up. If unset, it is 0. That many machines are detached
	// from their Auto Scaling group, which launches new ones in their place, and are drained last. In
	// the control plane's group only 0 is allowed: no new machine prepares while the old one serves.
	MaxSurge NumberOrPercent `json:"maxSurge,omitempty"`

	// Canary is how many workers of a group are replaced first: a number, or a percentage of the
	// group's size, rounded up. No other machine of the group is drained before that many new machines
	// serve, pauseBetween is over and all gates pass. If unset, it is 1.
	Canary NumberOrPercent `json:"canary,omitempty"`

	// DrainTimeout is how long the drain of a node may take, such as 15m; 0s means without a limit. If
	// unset, it is 15m. An update stops when a drain takes longer, and no pod is deleted by force.
	DrainTimeout string `json:"drainTimeout,omitempty"`

	// PauseBetween is the time between the moment at which a new machine serves and the drain of the
	// next one, such as 5m. If unset, there is no pause.
	PauseBetween string `json:"pauseBetween,omitempty"`

	// MaxFailures is the number of machines that do not become Ready in time after which an update stops,
	// 1 if unset. A control plane always stops after one.
	MaxFailures int `json:"maxFailures,omitempty"`

	// AutomaticRollback returns the groups to their former launch template versions when an update stops
	// because of failures, and replaces the machines that have the new ones.
	AutomaticRollback bool `json:"automaticRollback,omitempty"`

	// Gates are checks that must pass before each further machine is taken from service, in addition to
	// those of Slipway. Those of the cluster hold for all groups.
	Gates []Gate `json:"gates,omitempty"`
}

// Gate is one check. Exactly one of deployment, url and command is set.
type Gate struct {
	// Name of the check in messages.
	Name string `json:"name"`

	// Deployment is NAMESPACE/NAME of a Deployment all of whose replicas must be available.
	Deployment string `json:"deployment,omitempty"`

	// URL must answer a GET request of slipway with a status from 200 to 299.
	URL string `json:"url,omitempty"`

	// Command and its arguments, which slipway runs on the operator's computer and which must end with
	// exit status 0. The plan shows it.
	Command []string `json:"command,omitempty"`

	// Timeout of one check, such as 10s, which is also the default.
	Timeout string `json:"timeout,omitempty"`
}

// NumberOrPercent is a number of machines or a percentage of a group's size: 2 or 25%. Empty means unset.
type NumberOrPercent string

// UnmarshalJSON accepts a number or a string.
func (n *NumberOrPercent) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("decode a number or percentage: %w", err)
		}

		*n = NumberOrPercent(s)

		return nil
	}

	var i int
	if err := json.Unmarshal(text, &i); err != nil {
		return fmt.Errorf("decode a number or percentage: %w", err)
	}

	*n = NumberOrPercent(strconv.Itoa(i))

	return nil
}

// MarshalJSON writes a number as such.
func (n NumberOrPercent) MarshalJSON() ([]byte, error) {
	if i, err := strconv.Atoi(string(n)); err == nil {
		return strconv.AppendInt(nil, int64(i), 10), nil
	}

	text, err := json.Marshal(string(n))
	if err != nil {
		return nil, fmt.Errorf("encode %q: %w", string(n), err)
	}

	return text, nil
}

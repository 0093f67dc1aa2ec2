// SPDX-License-Identifier: Apache-2.0

package published

import (
	"encoding/json"
	"fmt"
)

// StatusName is the name of the ConfigMap in kube-system with the Status of each channel, by the name of the channel. It
// has no contents of objects.
const StatusName = "slipway-addon-channels"

// SerialAnnotation of that ConfigMap has the highest serial of published channels that was applied.
const SerialAnnotation = "slipway.dev/addon-channels-serial"

// State is how far the control plane has come with a channel.
type State string

// The states.
const (
	// Applied is of a channel that the cluster has.
	Applied State = "Applied"
	// Applying is of a channel with add-ons that are not healthy yet.
	Applying State = "Applying"
	// Drifted is of a channel of mode Report that the cluster differs from.
	Drifted State = "Drifted"
	// Failed is of a channel with add-ons that could not be applied.
	Failed State = "Failed"
)

// Status is what the control plane did with one channel.
type Status struct {
	// Serial of the change that published the channel last.
	Serial int64 `json:"serial"`
	// Mode of the channel.
	Mode Mode `json:"mode"`
	// State of the channel.
	State State `json:"state"`
	// Differences is the number of objects that differ, and of add-ons that left the channel.
	Differences int `json:"differences"`
	// Message names what is waited for, what differs, or what failed.
	Message string `json:"message,omitempty"`
}

// ParseStatus returns the status of each channel from the data of the ConfigMap.
func ParseStatus(data map[string]string) (map[string]Status, error) {
	out := map[string]Status{}
	for name, text := range data {
		var status Status
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return nil, fmt.Errorf("decode channel %s of ConfigMap kube-system/%s: %w", name, StatusName, err)
		}

		out[name] = status
	}

	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// ConfigPlaceholder stands in BootScript where the JSON of a BootConfig goes.
const ConfigPlaceholder = "@@CONFIG@@"

// MaxUserDataBytes is the size in bytes that user data may have. AWS allows 16 KiB; the rest is left to the operator.
const MaxUserDataBytes = 4096

//go:embed boot.py
var bootSource string

// BootConfig is what a machine is told by its user data. It holds no secret: anybody on the machine can read it.
type BootConfig struct {
	Cluster string `json:"cluster"`
	Group   string `json:"group"`
	// Role is "control-plane" or "worker", as in the tag slipway.dev/role.
	Role   string `json:"role"`
	Region string `json:"region"`
	// Agent and Document are downloaded by URL (s3:// or https://) and refused if their hash differs.
	Agent    Download `json:"agent"`
	Document Download `json:"document"`
	// API holds the load balancers' DNS names.
	API APIEndpoints `json:"api"`
	// Slot of a control-plane machine ("a", "b", …), empty for workers.
	Slot string `json:"slot,omitempty"`
	// SignalResources names, separated by commas, the resources of the CloudFormation stack Stack that are told when this machine is
	// well. Both are empty where no stack made the machine.
	SignalResources string `json:"signal,omitempty"`
	StackName       string `json:"stack,omitempty"`
}

// Download is a file to fetch and the hash it must have.
type Download struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
}

// APIEndpoints are where the API is: the DNS names of the load balancers, or an address. Public is empty where the API is
// internal only.
type APIEndpoints struct {
	Public   string `json:"public,omitempty"`
	Internal string `json:"internal"`
	// Elastic says that Public is an elastic IP address, which the control-plane machine takes.
	Elastic bool `json:"elastic,omitempty"`
}

// The values of BootConfig.Role and of the tag slipway.dev/role.
const (
	RoleTagControlPlane = "control-plane"
	RoleTagWorker       = "worker"
)

// BootScript is the user data of every machine, with ConfigPlaceholder in the place of its BootConfig's JSON. A renderer
// that can not know the load balancers' names writes the JSON with the references of its own format.
func BootScript() string {
	var b strings.Builder
	for i, line := range strings.SplitAfter(bootSource, "\n") {
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}

	return b.String()
}

// UserData is BootScript with c in it.
func UserData(c BootConfig) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("print boot config of group %s: %w", c.Group, err)
	}

	data := strings.Replace(BootScript(), ConfigPlaceholder, string(body), 1)
	if len(data) > MaxUserDataBytes {
		return "", fmt.Errorf(
			"user data of group %s has %d bytes, at most %d are allowed",
			c.Group,
			len(data),
			MaxUserDataBytes,
		)
	}

	return data, nil
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// ConfigPlaceholder marks the position of the BootConfig's JSON in BootScript.
const ConfigPlaceholder = "@@CONFIG@@"

// domainPlaceholder marks the domain of AWS's endpoints in the boot script.
const domainPlaceholder = "@@DOMAIN@@"

// MaxUserDataBytes is the maximum size of user data in bytes. AWS allows 16 KiB; the rest is left
// to the operator.
const MaxUserDataBytes = 4096

//go:embed boot.py
var bootSource string

// BootConfig is the JSON in a machine's user data. Every process on the machine can read it, so it
// must not contain secrets.
type BootConfig struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Group is the name of the instance group.
	Group string `json:"group"`
	// Role is RoleTagControlPlane or RoleTagWorker, as in the tag slipway.dev/role.
	Role string `json:"role"`
	// Region is the AWS region, such as us-east-1.
	Region string `json:"region"`
	// StoreOwner is the account that must own the buckets of the machine store. Empty in user data of an earlier
	// version: any.
	StoreOwner string `json:"owner,omitempty"`
	// Agent is the slipway-node binary. The boot script rejects a download with another hash.
	Agent Download `json:"agent"`
	// Document is the node document. The agent rejects a download with another hash.
	Document Download `json:"document"`
	// API holds the names of the API's load balancers.
	API APIEndpoints `json:"api"`
	// Slot of a control-plane machine ("a", "b", …); empty for workers.
	Slot string `json:"slot,omitempty"`
	// SignalResources lists, separated by commas, the logical ids in stack StackName that the
	// machine signals when it is healthy. Empty unless CloudFormation created the machine.
	SignalResources string `json:"signal,omitempty"`
	// StackName of the CloudFormation stack that created the machine; empty if none did.
	StackName string `json:"stack,omitempty"`
}

// Download is a file to download and its expected hash.
type Download struct {
	// URL is an s3:// or https:// URL.
	URL string `json:"url"`
	// SHA256 in lower-case hex.
	SHA256 string `json:"sha256"`
}

// APIEndpoints are the endpoints of the Kubernetes API: DNS names of load balancers, or an IP
// address.
type APIEndpoints struct {
	// Public endpoint; empty if the API is internal only.
	Public string `json:"public,omitempty"`
	// Internal endpoint, which machines use.
	Internal string `json:"internal"`
	// Elastic is set if Public is an Elastic IP address, which the control-plane machine associates
	// with itself.
	Elastic bool `json:"elastic,omitempty"`
}

// The values of BootConfig.Role and of the tag slipway.dev/role.
const (
	RoleTagControlPlane = "control-plane"
	RoleTagWorker       = "worker"
)

// BootScript returns the user data of every machine in a region, with ConfigPlaceholder instead of the
// BootConfig's JSON. Renderers that do not know the load balancers' names insert JSON with
// references of their own format (Terraform, CloudFormation).
func BootScript(region string) string {
	var b strings.Builder
	for i, line := range strings.SplitAfter(bootSource, "\n") {
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line)
		}
	}

	return strings.Replace(b.String(), domainPlaceholder, partition.OfRegion(region).DNSSuffix, 1)
}

// UserData returns BootScript with c inserted. It fails if the result exceeds MaxUserDataBytes.
func UserData(c BootConfig) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode boot config of group %s: %w", c.Group, err)
	}

	data := strings.Replace(BootScript(c.Region), ConfigPlaceholder, string(body), 1)
	if len(data) > MaxUserDataBytes {
		return "", fmt.Errorf(
			"user data of group %s has %d bytes, the maximum is %d",
			c.Group,
			len(data),
			MaxUserDataBytes,
		)
	}

	return data, nil
}

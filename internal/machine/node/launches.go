// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// LaunchesKind is the kind of Launches; its apiVersion is v1alpha1.APIVersion.
const LaunchesKind = "MachineLaunches"

// launchesPurpose separates the signatures of launches from others of the same key.
const launchesPurpose = "machine launches v1"

// Markers in the user data of a Launch. A control-plane machine replaces them by the names of the
// API that it has itself. Nobody knows these names when templates are rendered.
const (
	PublicAPIMarker   = "@@PUBLIC@@"
	InternalAPIMarker = "@@INTERNAL@@"
)

// maxLaunches limits the launches of a group. A machine whose user data has left the list cannot
// renew its certificate.
const maxLaunches = 30

// Launches says what the machines of groups that no Auto Scaling group launches may run.
// Control-plane machines read it when such a machine joins. It is signed with the key of the
// Kubernetes CA, which every machine knows from its node document.
type Launches struct {
	// APIVersion is v1alpha1.APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is LaunchesKind.
	Kind string `json:"kind"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Serial grows with each change. A control-plane machine refuses a list with a lower one than
	// it has seen.
	Serial int64 `json:"serial"`
	// Groups has the launches of each group by its name, the current one first. Machines of groups
	// that are not there must have been launched by Auto Scaling.
	Groups map[string][]Launch `json:"groups"`
	// Pools has what Karpenter launches machines of each group with.
	Pools map[string]Pool `json:"pools,omitempty"`
	// Next has what it launches them with after the next rolling update, for groups where that
	// differs.
	Next map[string]Pool `json:"next,omitempty"`
}

// Launch is what a machine of a group may run.
type Launch struct {
	// UserData is the whole user data, with markers for the names of the API.
	UserData string `json:"userData"`
	// Image is the id of the machine image.
	Image string `json:"image"`
}

// Pool is what Karpenter is told about a group: the control plane writes an EC2NodeClass and a
// NodePool from it.
type Pool struct {
	// Launch is the user data and the image.
	Launch Launch `json:"launch"`
	// Profile is the name of the instance profile.
	Profile string `json:"profile"`
	// Subnets has the tags of each subnet.
	Subnets []map[string]string `json:"subnets"`
	// SecurityGroups has the tags of each security group.
	SecurityGroups []map[string]string `json:"securityGroups"`
	// RootDevice is the device name of the root volume.
	RootDevice string `json:"rootDevice"`
	// RootVolume is the root volume. Its encryption key is an ARN or an alias.
	RootVolume v1alpha1.RootVolume `json:"rootVolume"`
	// HopLimit of the answers of the metadata service.
	HopLimit int `json:"hopLimit"`
	// Tags of what Karpenter creates.
	Tags map[string]string `json:"tags"`
	// Architecture is amd64 or arm64.
	Architecture string `json:"architecture"`
	// MachineTypes are the EC2 instance types.
	MachineTypes []string `json:"machineTypes"`
	// Spot is set if machines may be spot instances. Without capacity for them Karpenter launches
	// on-demand ones.
	Spot bool `json:"spot,omitempty"`
	// NodeLabels of the Nodes.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Taints of the Nodes, each key=value:Effect.
	Taints []string `json:"taints,omitempty"`
	// Kubelet are the settings by which Karpenter computes how many pods fit on a machine.
	Kubelet v1alpha1.Kubelet `json:"kubelet,omitzero"`
	// Limits can change without a rolling update.
	Limits PoolLimits `json:"limits"`
}

// PoolLimits limit what Karpenter does in a group.
type PoolLimits struct {
	// Machines is the largest number of machines.
	Machines int `json:"machines"`
	// Disrupted is how many of them Karpenter may replace or end at once: a number or a percentage.
	Disrupted string `json:"disrupted"`
}

// sameLaunch reports whether machines of two pools are the same: the limits do not count.
func (p Pool) sameLaunch(other Pool) bool {
	p.Limits = PoolLimits{}
	other.Limits = PoolLimits{}
	one, err := json.Marshal(p)
	two, otherErr := json.Marshal(other)

	return err == nil && otherErr == nil && bytes.Equal(one, two)
}

// FillUserData returns the user data of the launch in a cluster with these names of the API; false
// if the cluster lacks one.
func (l Launch) FillUserData(api APIEndpoints) (string, bool) {
	text := l.UserData
	for _, pair := range [][2]string{{InternalAPIMarker, api.Internal}, {PublicAPIMarker, api.Public}} {
		if strings.Contains(text, pair[0]) && pair[1] == "" {
			return "", false
		}

		text = strings.ReplaceAll(text, pair[0], pair[1])
	}

	return text, true
}

// LaunchesKey returns the key of the Launches in the machine store. Only control-plane machines may
// read it, and no machine may write it.
func LaunchesKey(cluster string) string {
	return DocumentPrefix(cluster, v1alpha1.RoleControlPlane) + "launches.json"
}

// LaunchesInput is the input of NewLaunches.
type LaunchesInput struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Former launches; zero if there are none or if they cannot be trusted.
	Former Launches
	// Current is what Karpenter is to launch machines of each of its groups with from now on, by
	// group.
	Current map[string]Pool
	// FirstSerial is the lowest serial of changed launches. A time in seconds is greater than any
	// serial of launches that were lost.
	FirstSerial int64
}

// NewLaunches returns the launches that make others current, and whether they differ from the
// former ones. Earlier launches of a group stay, since running machines have them. A group keeps
// its pool until [Launches.Promote], so that an apply does not replace machines. Groups that are no
// longer there are left out.
func NewLaunches(in LaunchesInput) (out Launches, changed bool) {
	out = Launches{
		APIVersion: v1alpha1.APIVersion,
		Kind:       LaunchesKind,
		Cluster:    in.Cluster,
		Serial:     max(in.Former.Serial+1, in.FirstSerial),
		Groups:     map[string][]Launch{},
		Pools:      map[string]Pool{},
		Next:       map[string]Pool{},
	}
	for group, current := range in.Current {
		pool, isKnown := in.Former.Pools[group]

		switch {
		case !isKnown || pool.sameLaunch(current):
			pool = current
		default:
			pool.Limits = current.Limits
			out.Next[group] = current
		}

		out.Pools[group] = pool
		out.Groups[group] = listLaunches(current.Launch, pool.Launch, in.Former.Groups[group])
	}

	if out.equal(in.Former) {
		return in.Former, false
	}

	return out, true
}

// listLaunches returns the launches of a group: the current one, that of its pool, and the former
// ones.
func listLaunches(current, pool Launch, former []Launch) []Launch {
	out := []Launch{current}
	for _, l := range append([]Launch{pool}, former...) {
		if !slices.Contains(out, l) && len(out) < maxLaunches {
			out = append(out, l)
		}
	}

	return out
}

// equal reports whether two lists differ in their serials only.
func (l Launches) equal(other Launches) bool {
	l.Serial = other.Serial
	one, err := json.Marshal(l)
	two, otherErr := json.Marshal(other)

	return err == nil && otherErr == nil && bytes.Equal(one, two)
}

// Promote returns the launches in which groups have their next pools, as a rolling update makes it,
// and the names of the groups that have changed. firstSerial is as in [LaunchesInput].
func (l Launches) Promote(groups []string, firstSerial int64) (Launches, []string) {
	out := l
	out.Pools = maps.Clone(l.Pools)
	out.Next = maps.Clone(l.Next)
	var changed []string

	for _, group := range groups {
		next, waits := l.Next[group]
		if !waits {
			continue
		}

		out.Pools[group] = next
		delete(out.Next, group)
		changed = append(changed, group)
	}

	if len(changed) > 0 {
		out.Serial = max(l.Serial+1, firstSerial)
	}

	return out, changed
}

// Images returns the ids of all images in the list, sorted, each once.
func (l Launches) Images() []string {
	var out []string
	for _, launches := range l.Groups {
		for _, one := range launches {
			out = append(out, one.Image)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// signedLaunches is the form in which Launches are stored.
func signedLaunches() signedForm { return signedForm{name: "launches", purpose: launchesPurpose} }

// Sign encodes and signs the launches with the key of the Kubernetes CA.
func (l Launches) Sign(key pki.Key) ([]byte, error) { return signedLaunches().sign(l, l.Cluster, key) }

// VerifyLaunches decodes the output of Sign. It fails unless a certificate of the Kubernetes CA
// (PEM) has the key that signed, and unless the launches are those of the cluster.
func VerifyLaunches(body []byte, caPEM, cluster string) (Launches, error) {
	var out Launches
	if err := signedLaunches().verify(body, caPEM, cluster, &out); err != nil {
		return Launches{}, err
	}

	if out.APIVersion != v1alpha1.APIVersion || out.Kind != LaunchesKind || out.Cluster != cluster {
		return Launches{}, fmt.Errorf("the launches are %s %s of cluster %s, want cluster %s",
			out.APIVersion, out.Kind, out.Cluster, cluster)
	}

	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// LaunchesKind is the kind of Launches; its apiVersion is v1alpha1.APIVersion.
const LaunchesKind = "MachineLaunches"

// launchesPurpose separates the signatures of launches from others of the same key.
const launchesPurpose = "machine launches v1"

// Markers in the user data of a Launch. A control-plane machine replaces them by the names of the API that it has itself.
// Nobody knows these names when templates are rendered.
const (
	PublicAPIMarker   = "@@PUBLIC@@"
	InternalAPIMarker = "@@INTERNAL@@"
)

// maxLaunches limits the launches of a group. A machine whose user data has left the list cannot renew its certificate.
const maxLaunches = 30

// Launches says what the machines of groups that no Auto Scaling group launches may run. Control-plane machines read it when
// such a machine joins. It is signed with the key of the Kubernetes CA, which every machine knows from its node document.
type Launches struct {
	// APIVersion is v1alpha1.APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is LaunchesKind.
	Kind string `json:"kind"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Serial grows with each change. A control-plane machine refuses a list with a lower one than it has seen.
	Serial int64 `json:"serial"`
	// Groups has the launches of each group by its name, the current one first. Machines of groups that are not there must
	// have been launched by Auto Scaling.
	Groups map[string][]Launch `json:"groups"`
}

// Launch is what a machine of a group may run.
type Launch struct {
	// UserData is the whole user data, with markers for the names of the API.
	UserData string `json:"userData"`
	// Image is the id of the machine image.
	Image string `json:"image"`
}

// FillUserData returns the user data of the launch in a cluster with these names of the API; false if the cluster lacks one.
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

// LaunchesKey returns the key of the Launches in the machine store. Only control-plane machines may read it, and no machine
// may write it.
func LaunchesKey(cluster string) string {
	return DocumentPrefix(cluster, v1alpha1.RoleControlPlane) + "launches.json"
}

// LaunchesInput is the input of NewLaunches.
type LaunchesInput struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Former launches; zero if there are none or if they cannot be trusted.
	Former Launches
	// Current are the launches of the groups from now on, by group.
	Current map[string]Launch
	// FirstSerial is the lowest serial of changed launches. A time in seconds is greater than any serial of launches that were
	// lost.
	FirstSerial int64
}

// NewLaunches returns the launches that make others current, and whether they differ from the former ones. Earlier launches of
// a group stay, since running machines have them. Groups that are no longer there are left out.
func NewLaunches(in LaunchesInput) (out Launches, changed bool) {
	out = Launches{
		APIVersion: v1alpha1.APIVersion,
		Kind:       LaunchesKind,
		Cluster:    in.Cluster,
		Serial:     max(in.Former.Serial+1, in.FirstSerial),
		Groups:     map[string][]Launch{},
	}
	changed = len(in.Current) != len(in.Former.Groups)
	for group, current := range in.Current {
		former := in.Former.Groups[group]
		isCurrent := len(former) > 0 && former[0] == current
		changed = changed || !isCurrent

		earlier := slices.DeleteFunc(slices.Clone(former), func(l Launch) bool { return l == current })
		all := append([]Launch{current}, earlier...)
		out.Groups[group] = all[:min(len(all), maxLaunches)]
	}

	if !changed {
		return in.Former, false
	}

	return out, true
}

// signedLaunches is the form in which Launches are stored.
func signedLaunches() signedForm { return signedForm{name: "launches", purpose: launchesPurpose} }

// Sign encodes and signs the launches with the key of the Kubernetes CA.
func (l Launches) Sign(key pki.Key) ([]byte, error) { return signedLaunches().sign(l, l.Cluster, key) }

// VerifyLaunches decodes the output of Sign. It fails unless a certificate of the Kubernetes CA (PEM) has the key that
// signed, and unless the launches are those of the cluster.
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

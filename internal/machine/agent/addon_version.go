// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// nodeVersions is a list of nodes with the versions of their kubelets.
type nodeVersions struct {
	Items []struct {
		Status struct {
			NodeInfo struct {
				KubeletVersion string `json:"kubeletVersion"`
			} `json:"nodeInfo"`
		} `json:"status"`
	} `json:"items"`
}

// findOlderServer reports whether the control plane has a machine of an earlier version of Kubernetes. During an
// upgrade the agents of both versions run; the oldest one applies the add-ons. Otherwise they would replace each
// other's add-ons every few seconds, and kube-proxy would be newer than an API server, which the version skew policy
// of Kubernetes does not allow.
func findOlderServer(ctx context.Context, api kube.Client, version string) (bool, error) {
	var list nodeVersions
	err := api.Get(ctx, "/api/v1/nodes?labelSelector=node-role.kubernetes.io/control-plane", &list)
	if err != nil {
		return false, err
	}

	own := versionNumbers(version)
	for _, n := range list.Items {
		other := versionNumbers(n.Status.NodeInfo.KubeletVersion)
		if len(other) > 0 && slices.Compare(other, own) < 0 {
			return true, nil
		}
	}

	return false, nil
}

// versionNumbers returns the numbers of a version such as v1.36.3; nothing if it is not like that.
func versionNumbers(version string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}

		out = append(out, n)
	}

	return out
}

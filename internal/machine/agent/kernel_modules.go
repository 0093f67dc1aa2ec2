// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// requiredModules returns the kernel modules that a node needs. Debian, Ubuntu and Amazon Linux load none of them at
// boot. overlay is for containers' file systems, vxlan or wireguard for pods' packets between machines, if these have an overlay of
// their own. Without br_netfilter a packet between two pods of one machine bypasses kube-proxy's rules: its answer comes from an
// address that the client does not know, and the kernel settings net.bridge.* do not exist.
func requiredModules(n node.ClusterNetwork) []string {
	modules := []string{"overlay", "br_netfilter"}

	switch {
	case n.CNI == v1alpha1.CNIAmazonVPC:
		return modules
	case n.FlannelBackend == v1alpha1.FlannelWireGuard:
		return append(modules, "wireguard")
	default:
		return append(modules, "vxlan")
	}
}

// loadKernelModules loads those kernel modules that are not loaded. modprobe succeeds for modules that are built
// into the kernel. It must run before the kernel settings are set: some of them belong to a module.
func loadKernelModules(ctx context.Context, root *HostFS, run Runner, modules []string) error {
	for _, name := range modules {
		if _, err := os.Stat(root.Path("/sys/module/" + name)); err == nil {
			continue
		}

		if output, err := run.Run(ctx, "modprobe", name); err != nil {
			if output = strings.TrimSpace(output); output != "" {
				err = fmt.Errorf("%w: %s", err, output)
			}

			return diag.WithHint(
				fmt.Errorf("load kernel module %s: %w", name, err),
				"use a machine image whose kernel has "+strings.Join(modules, ", "),
			)
		}
	}

	return nil
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// filterPackets makes the agent of a real machine load packet filters into the kernel.
func filterPackets(a *Agent) {
	a.Nft = newNft(a, exec.LookPath)
	a.GuardMetadata = newMetadataGuard(a.Root, a.Nft).Apply
	a.PolicyRules = kernelPolicyRules{root: a.Root, program: a.Nft}
}

// newNft returns the program nft of a machine, on which find looks for programs.
func newNft(a *Agent, find func(name string) (string, error)) *nft.Program {
	return &nft.Program{
		Root:    a.Root.Dir,
		Dir:     kube.NftDir,
		Find:    find,
		Execute: a.Run.Run,
		Image: func(ctx context.Context) (string, error) {
			return knownNftImage(a), waitForContainerd(ctx, a)
		},
		Pull: a.pullImageRepeatedly,
		Log:  a.Log,
		Now:  func() time.Time { return a.Now() },
	}
}

// nftImageFile has the reference of the image with nft: an agent that starts again does not know its document before it reaches the
// metadata service.
const nftImageFile = kube.NftDir + ".image"

// knownNftImage returns the reference of the image with nft, by the document or else as an earlier process has recorded it; empty if it is
// not known.
func knownNftImage(a *Agent) string {
	if image := a.doc.Images[node.ProxyImage]; image != "" {
		return image
	}

	recorded, err := a.Root.Read(nftImageFile)
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(recorded))
}

// recordNftImage records the reference of the image with nft.
func recordNftImage(a *Agent) error {
	image := a.doc.Images[node.ProxyImage]
	if image == "" {
		return nil
	}

	_, err := a.Root.Write(File{Path: nftImageFile, Body: []byte(image + "\n"), Mode: 0o600})

	return err
}

// reloadTimeout limits how long a starting agent tries to load the rules again.
const reloadTimeout = time.Minute

// reloadEarlierRules lets this process reach the metadata service: rules that an earlier process
// loaded refuse it if its unit has a new control group. After a boot there are no such rules, and containerd does not run yet: a machine
// without the program loads them later.
func reloadEarlierRules(ctx context.Context, a *Agent) {
	if a.Nft != nil && !a.Nft.IsPresent(ctx) && (knownNftImage(a) == "" || !isUnitActive(ctx, a, "containerd")) {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	// The machine runs no container before loadPacketFilters succeeds.
	if err := a.guardMetadata(ctx); err != nil {
		a.Log.Warn("cannot guard the instance metadata service; will retry", slog.Any("error", err))
	}
}

// kernelHint is for a kernel that does not take the rules.
const kernelHint = "use a machine image whose kernel is Linux 5.13 or later " +
	"with nf_tables, nft_socket and nft_reject"

// loadPacketFilters loads the rules without which no container may start. On a machine that may run
// containers already, a failure is logged, and the periodic tasks report it as a condition: the
// containers would run on without an agent.
func loadPacketFilters(ctx context.Context, a *Agent) error {
	err := loadRequiredRules(ctx, a)
	if err == nil {
		return recordNftImage(a)
	}

	if isUnitActive(ctx, a, node.ComponentKubelet) {
		a.Log.Warn(
			"cannot load packet filters, but containers run already; will retry",
			slog.Any("error", err),
		)

		return nil
	}

	err = fmt.Errorf("no container starts before the packet filters are loaded: %w", err)
	if len(diag.Hints(err)) == 0 {
		err = diag.WithHint(err, kernelHint)
	}

	return err
}

// loadRequiredRules loads the rules that guard the metadata service and the join endpoint. On the
// control plane it also checks that the API server's gate can be closed.
func loadRequiredRules(ctx context.Context, a *Agent) error {
	if err := a.guardMetadata(ctx); err != nil {
		return fmt.Errorf("guard the instance metadata service and the join endpoint: %w", err)
	}

	if a.doc.Role != v1alpha1.RoleControlPlane || a.Nft == nil {
		return nil
	}

	if err := checkGate(ctx, a); err != nil {
		return fmt.Errorf("check the rules that hold back connections to a starting API server: %w", err)
	}

	return nil
}

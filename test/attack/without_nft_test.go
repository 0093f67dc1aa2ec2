// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
)

// TestContainersReachNoMetadataWithoutNft: the same on a machine whose image has no nft, with the copy of that of kube-proxy's
// image. Before, no rules were loaded there. Seen to succeed then.
func TestContainersReachNoMetadataWithoutNft(t *testing.T) {
	w := newWorld(t, "unified")
	program := w.copiedNft()
	w.guard.Load = func(ctx context.Context, ruleset string) error {
		file := filepath.Join(t.TempDir(), "rules.nft")
		if err := os.WriteFile(file, []byte(ruleset), 0o600); err != nil {
			return err
		}
		_, err := program.Run(ctx, "-f", file)
		return err
	}
	w.guard.List = func(ctx context.Context) (string, error) {
		return program.Run(ctx, "--stateless", "list", "table", "inet", "slipway_metadata")
	}
	w.check()
}

// copiedNft returns the program of a machine that has none. Its image has nft and the libraries of the computer that runs
// the test.
func (w *world) copiedNft() *nft.Program {
	w.Helper()
	own, err := exec.LookPath("nft")
	if err != nil {
		w.Skip("SKIPPED: no nft on this machine")
	}
	libraries, err := exec.Command("ldd", own).Output()
	if err != nil {
		w.Skip("SKIPPED: no ldd on this machine")
	}
	root := w.TempDir()
	mount := func(at string) error {
		for _, name := range append(strings.Fields(string(libraries)), "/usr/sbin/nft") {
			from := name
			if name == "/usr/sbin/nft" {
				from = own
			}
			if !strings.HasPrefix(name, "/") {
				continue
			}
			body, err := os.ReadFile(from)
			to := filepath.Join(at, name)
			if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, body, 0o600)); err != nil {
				return err
			}
		}
		return nil
	}
	return &nft.Program{
		Root: root,
		Dir:  kube.NftDir,
		Find: func(string) (string, error) { return "", exec.ErrNotFound },
		Execute: func(ctx context.Context, name string, args ...string) (string, error) {
			if name == "ctr" && slices.Contains(args, "mount") {
				return "", mount(args[len(args)-1])
			}
			if name == "ctr" {
				return "", nil
			}
			all := append([]string{"--net=/run/netns/" + w.machine, name}, args...)
			out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return string(out), err
		},
		Image: func(context.Context) (string, error) { return "registry.example/kube-proxy:v1", nil },
		Pull:  func(context.Context, string) error { return nil },
		Log:   slog.New(slog.DiscardHandler),
		Now:   time.Now,
	}
}

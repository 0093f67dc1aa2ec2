// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// Limits and defaults of an administrator's certificate.
const (
	adminTTL    = 8 * time.Hour
	adminMaxTTL = 7 * 24 * time.Hour
)

type exportOptions struct {
	name, kubeconfig string
	admin            time.Duration
}

func newExportCommand(a *app) *cobra.Command {
	return newGroupCommand("export", "Get access to a cluster", groupCluster, newExportKubeconfigCommand(a))
}

func newExportKubeconfigCommand(a *app) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Merge a short-lived admin certificate into your kubeconfig",
		Long: `Issue an administrator certificate from the certificate authority in the state store and merge it into the kubeconfig, as
a context with the cluster's name, which becomes the current context. Other entries are never changed: an entry with the
cluster's name that slipway did not write is an error. The file is written atomically, with mode 0600.` + exitStatusHelp(),
		Example: `  slipway export kubeconfig demo
  slipway export kubeconfig demo --admin 1h --kubeconfig ./demo.kubeconfig
  slipway export kubeconfig demo --kubeconfig - > demo.kubeconfig`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return exporter{a}.exportKubeconfig(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().DurationVar(&o.admin, "admin", adminTTL, "lifetime of the certificate, at most 168h")
	cmd.Flags().StringVar(
		&o.kubeconfig,
		"kubeconfig",
		"",
		"file, or - for stdout (default: the first of KUBECONFIG, else ~/.kube/config)",
	)

	return cmd
}

// exporter writes kubeconfigs.
type exporter struct{ *app }

func (a exporter) exportKubeconfig(ctx context.Context, name string, o exportOptions) error {
	if o.admin <= 0 || o.admin > adminMaxTTL {
		return withHint(
			fmt.Errorf("--admin %s is not a lifetime for an administrator's certificate", o.admin),
			"use 1h to 168h",
		)
	}

	s, sealer, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return err
	}

	cfg, err := a.awsConfig(ctx, "")
	if err != nil {
		return err
	}

	admin, err := access.Issue(ctx, cfg, access.Request{
		Store:   s,
		Sealer:  sealer,
		Cluster: name,
		User:    a.Getenv("USER"),
		TTL:     o.admin,
		Now:     a.Now,
	})
	if err != nil {
		return err
	}

	admin.Server = access.PreferDNSName(ctx, a.newClusterEnv(), set.Cluster.Spec, admin.Server)
	return a.writeKubeconfig(admin, o)
}

// writeKubeconfig prints a kubeconfig, or merges it into the file of --kubeconfig.
func (a exporter) writeKubeconfig(admin pki.KubeconfigOptions, o exportOptions) error {
	if o.kubeconfig == "-" {
		text, err := pki.RenderKubeconfig(admin)
		if err != nil {
			return err
		}

		_, err = a.Stdout.Write(text)

		return err
	}

	file, err := a.kubeconfigFile(o.kubeconfig)
	if err != nil {
		return err
	}

	if err := access.MergeKubeconfig(file, admin); err != nil {
		return err
	}

	a.printMessage(
		"context %s is now the current context of %s; its certificate is valid for %s",
		admin.Name,
		file,
		o.admin,
	)

	return nil
}

// kubeconfigFile returns the file that kubectl would write to.
func (a exporter) kubeconfigFile(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}

	for _, file := range filepath.SplitList(a.Getenv("KUBECONFIG")) {
		if file != "" {
			return file, nil
		}
	}

	if home := a.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".kube", "config"), nil
	}

	return "", withHint(errors.New("no kubeconfig file is known"), "give --kubeconfig FILE, or set HOME")
}

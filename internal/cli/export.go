// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
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
	exec             bool   // a command that prints tokens, instead of a certificate
	endpoint         string // of STS, for exec
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
cluster's name that slipway did not write is an error. The file is written atomically, with mode 0600.

With --exec the kubeconfig has no certificate: kubectl runs 'slipway token', which proves who you are in AWS. That needs no key
of the cluster. spec.api.users of the cluster says who has access.` + exitStatusHelp(),
		Example: `  slipway export kubeconfig demo
  slipway export kubeconfig demo --admin 1h --kubeconfig ./demo.kubeconfig
  slipway export kubeconfig demo --kubeconfig - > demo.kubeconfig
  slipway export kubeconfig demo --exec`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return exporter{a}.exportKubeconfig(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().BoolVar(
		&o.exec, "exec", false,
		"let kubectl run 'slipway token' instead of using a certificate",
	)
	cmd.Flags().StringVar(&o.endpoint, "sts-endpoint", "", "with --exec: URL of STS that the control plane asks, "+
		"if it is not the regional one")
	cmd.Flags().DurationVar(
		&o.admin, "admin", adminTTL,
		"lifetime of the certificate, at most 168h",
	)
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

	request := access.Request{
		Store:   s,
		Sealer:  sealer,
		Cluster: name,
		User:    a.Getenv("USER"),
		TTL:     o.admin,
		Now:     a.Now,
	}

	var admin pki.KubeconfigOptions
	if o.exec {
		admin, err = a.describeExec(ctx, cfg, request, set.Cluster, o)
	} else {
		admin, err = access.Issue(ctx, cfg, request)
	}

	if err != nil {
		return err
	}

	admin.Server = access.PreferDNSName(ctx, a.newClusterEnv(), set.Cluster.Spec, admin.Server)
	return a.writeKubeconfig(admin, o)
}

// describeExec returns a kubeconfig that runs 'slipway token'.
func (a exporter) describeExec(
	ctx context.Context,
	cfg aws.Config,
	r access.Request,
	c v1alpha1.Cluster,
	o exportOptions,
) (pki.KubeconfigOptions, error) {
	if len(c.Spec.API.Users) == 0 {
		return pki.KubeconfigOptions{}, withHint(
			fmt.Errorf("cluster %s accepts no tokens: spec.api.users is empty", r.Cluster),
			"name your role there with: slipway edit cluster "+r.Cluster,
		)
	}

	id, err := access.FindClusterID(ctx, r.Store, r.Cluster)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	command := []string{"slipway", "token", "--cluster-id", id, "--region", c.Spec.CloudProvider.AWS.Region}
	if a.profile != "" {
		command = append(command, "--profile", a.profile)
	}

	if o.endpoint != "" {
		command = append(command, "--sts-endpoint", o.endpoint)
	}

	return access.DescribeWithoutKey(ctx, cfg, r, command)
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

	if o.exec {
		a.printMessage("context %s is now the current context of %s; kubectl runs: %s",
			admin.Name, file, strings.Join(admin.Command, " "))

		return nil
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

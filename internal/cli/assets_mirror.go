// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cli/userconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
	"github.com/slipway-k8s/slipway/internal/lib/asset/mirror"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// assetsMirror is the command assets mirror.
type assetsMirror struct {
	*app
	to          []string
	from        string
	archs       []string
	kubernetes  []string
	bucketOwner string
	out         string
	format      string
}

func newAssetsMirrorCommand(a *app) *cobra.Command {
	m := &assetsMirror{app: a}
	cmd := &cobra.Command{
		Use:   "mirror --to s3://BUCKET[/PREFIX] --to HOST[/PREFIX]",
		Short: "Copy files and images to a bucket and a registry for machines without access to the internet",
		Long: `Copy what machines download to a mirror: the files of the asset catalogue to a bucket in S3, and its images to a registry, such as
Amazon ECR (ACCOUNT.dkr.ecr.REGION.amazonaws.com). Afterwards it prints the values for spec.assets of the manifest.

It shows what it would copy first. What the mirror already has with the right hash is not copied again, so that a run that was interrupted
continues where it stopped. S3 and the registry refuse contents with another hash. Nothing is deleted.

What 'slipway assets build' or 'slipway assets fetch' stored (--from) is taken from there; everything else is downloaded from
where the catalogue has it. Images that the catalogue does not pin get the digest that their tag has upstream; --out writes a
catalogue with all digests, for --assets of 'slipway create cluster'.

It logs in to Amazon ECR with the AWS credentials and creates missing repositories there; to other registries with what 'docker
login' stored. Machines read the bucket without credentials: allow s3:GetObject in its policy, for your VPC endpoint only.` + exitStatusHelp(),
		Example: "  slipway assets mirror --to s3://mirror/kubernetes --to 123456789012.dkr.ecr.eu-central-1.amazonaws.com/kubernetes\n" +
			"  slipway assets mirror --to registry.example.com:5000 --arch arm64 --kubernetes-version 1.35 --out mirrored.yaml --yes",
		Args: requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context()) },
	}

	m.addFlags(cmd)
	addFormatFlag(cmd, &m.format)
	a.addAssetsFlag(cmd)
	a.addYesFlag(cmd)

	return cmd
}

// addFlags adds the flags of the command itself.
func (m *assetsMirror) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(
		&m.to,
		"to",
		nil,
		"where to copy: files to s3://BUCKET[/PREFIX], images to HOST[:PORT][/PREFIX]; repeatable",
	)

	flags.StringVar(
		&m.from,
		"from",
		"",
		"directory of built or fetched assets (default: assets in the cache directory)",
	)

	flags.StringSliceVar(
		&m.archs,
		"arch",
		nil,
		"architectures of the machines, amd64 or arm64 (default: all of the catalogue)",
	)

	flags.StringSliceVar(
		&m.kubernetes,
		"kubernetes-version",
		nil,
		"also copy this version of Kubernetes, such as 1.35; repeatable",
	)

	flags.StringVar(&m.bucketOwner, "bucket-owner", "", "AWS account that owns the bucket (default: yours)")
	flags.StringVar(
		&m.out,
		"out",
		"",
		"file for the catalogue of the mirror, with the digests of all images",
	)
}

// run shows what the mirror lacks and, once that is confirmed, copies it.
func (m *assetsMirror) run(ctx context.Context) error {
	o, err := m.options(ctx)
	if err != nil {
		return err
	}

	plan, err := mirror.NewPlan(ctx, o)
	if err != nil {
		return err
	}

	if err := m.printSteps(plan); err != nil {
		return err
	}

	if len(plan.Steps) > 0 {
		if err := m.confirm(fmt.Sprintf("Make these %d changes to the mirror?", len(plan.Steps))); err != nil {
			return err
		}

		if err := plan.Copy(ctx); err != nil {
			return withHint(err, "run it again to continue")
		}
	}

	return m.finish(plan)
}

// printSteps prints what the mirror lacks.
func (m *assetsMirror) printSteps(plan *mirror.Plan) error {
	if m.format != formatTable {
		steps := plan.Steps
		if steps == nil {
			steps = []mirror.Step{}
		}

		return m.printValue(m.format, steps)
	}

	if len(plan.Steps) == 0 {
		m.printMessage("all %d files and images are there; nothing changes", plan.Total)
		return nil
	}

	var rows [][]string
	for _, s := range plan.Steps {
		rows = append(rows, []string{s.Action, s.Asset, s.Target})
	}

	m.printTable([]string{"ACTION", "ASSET", "TARGET"}, rows)

	return nil
}

// finish writes the catalogue and prints how a cluster uses the mirror.
func (m *assetsMirror) finish(plan *mirror.Plan) error {
	if m.out != "" {
		raw, err := plan.Catalog.YAML()
		if err == nil {
			err = os.WriteFile(m.out, append([]byte("# Created by slipway assets mirror.\n"), raw...), 0o644)
		}

		if err != nil {
			return fmt.Errorf("write the catalogue of the mirror: %w", err)
		}
	}

	if plan.HasFiles() {
		m.printMessage("the mirror is complete; set spec.assets.fileRepository: %s", plan.Catalog.FileRepository)
	}

	if plan.HasImages() {
		m.printMessage("the mirror is complete; set spec.assets.containerRegistry: %s", plan.Catalog.ContainerRegistry)
	}

	return nil
}

// options returns what is copied, and where to.
func (m *assetsMirror) options(ctx context.Context) (mirror.Options, error) {
	o := mirror.Options{
		Archs:     m.archs,
		Folder:    m.from,
		Transport: http.DefaultTransport,
		Log:       m.Stderr,
		Clock:     m.Now,
	}
	if len(m.to) == 0 {
		return o, withHint(
			errors.New("no mirror is given"),
			"give --to s3://BUCKET/PREFIX for files, --to HOST/PREFIX for images, or both",
		)
	}

	for _, to := range m.to {
		if err := m.addTarget(ctx, &o, to); err != nil {
			return o, err
		}
	}

	if o.Folder == "" {
		cache, err := m.cacheDir()
		if err != nil {
			return o, err
		}

		o.Folder = assetsDir(cache)
	}

	catalog, err := manifests.LoadCatalog(ctx, m.catalogSource())
	if err != nil {
		return o, err
	}

	if len(o.Archs) == 0 {
		o.Archs = architectures(catalog)
	}

	o.Catalog, err = fetch.Select(catalog, o.Archs, m.kubernetes)

	return o, err
}

// architectures returns those for which a catalogue has files, in order.
func architectures(c asset.Catalog) []string {
	var archs []string
	for _, f := range c.Files {
		archs = append(archs, f.Arch)
	}

	slices.Sort(archs)

	return slices.Compact(archs)
}

// addTarget adds a value of --to.
func (m *assetsMirror) addTarget(ctx context.Context, o *mirror.Options, to string) error {
	target, err := mirror.ParseTarget(to)
	if err != nil {
		return err
	}

	if target.Bucket != "" && o.Bucket != nil || target.Registry != "" && o.Registry != nil {
		return withHint(
			fmt.Errorf("--to %s: a run copies to one bucket and one registry", to),
			"run the command once for each mirror",
		)
	}

	if target.Bucket != "" {
		o.Bucket, err = m.openBucket(ctx, target, to)
		return err
	}

	o.Registry, err = m.openRegistry(ctx, target)

	return err
}

// openBucket returns the bucket of a target. Its requests fail unless the account owns it that is expected.
func (m *assetsMirror) openBucket(ctx context.Context, target mirror.Target, url string) (*mirror.Bucket, error) {
	cfg, err := m.awsConfig(ctx, "")
	if err != nil {
		return nil, err
	}

	owner := m.bucketOwner
	if owner == "" {
		owner, err = m.stores().findOwner(ctx, cfg, url)
	} else {
		err = userconfig.CheckAccount(owner)
	}

	if err != nil {
		return nil, err
	}

	client := s3.NewFromConfig(cfg, store.ExpectOwner(owner))

	return &mirror.Bucket{
		API:      client,
		Name:     target.Bucket,
		Prefix:   target.Prefix,
		Region:   cfg.Region,
		Endpoint: aws.ToString(client.Options().BaseEndpoint),
	}, nil
}

// openRegistry returns the registry of a target. Amazon ECR is asked in the region of its host name.
func (m *assetsMirror) openRegistry(ctx context.Context, target mirror.Target) (*mirror.Registry, error) {
	r := &mirror.Registry{Prefix: target.Registry, Keys: authn.DefaultKeychain}
	host, ok := ecraddress.Parse(target.Registry)
	if !ok {
		return r, nil
	}

	cfg, err := m.awsConfig(ctx, host.Region)
	if err != nil {
		return nil, err
	}

	r.ECR = &mirror.ECR{API: ecr.NewFromConfig(cfg), Account: host.Account}

	return r, nil
}

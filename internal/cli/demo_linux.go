// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/middleware"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
	"github.com/slipway-k8s/slipway/internal/lib/awsfix"
	"github.com/slipway-k8s/slipway/internal/region"
)

const (
	demoCluster = "demo"
	demoState   = "s3://slipway-demo"
	demoTimeout = 10 * time.Minute
)

func newDemoCommand(a *app) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Create a highly available cluster in a local region",
		Long: `Download or build the assets, start the local region and create the default cluster in it: three control-plane machines and two
workers over three zones, with real etcd and Kubernetes; examples/ha.yaml has the same manifests. Each step is a slipway command,
printed as you would type it. The cluster keeps running; 'slipway region destroy' removes it. Rerun the command to resume after
an interruption.

The assets are what machines download: Kubernetes, etcd, containerd and images. On the first run upstream's releases are downloaded
where the network allows it ('slipway assets fetch'); otherwise they are built from source, in about 25 minutes.

--check only reports whether this computer can run it: what is built, what would be built, and what is missing. The sources of
the assets are the directory assets of a checkout of slipway, or share/slipway/assets of its package; the versions of Kubernetes
and etcd are pinned there, and the Go toolchain downloads and verifies them.` +
			exitStatusHelp(),
		Example: "  slipway demo --check\n  slipway demo --yes",
		GroupID: groupLocal,
		Args:    requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return demoChecker{a}.run(cmd.Context())
			}

			if err := a.confirm("A region with five machines will run on this computer (about 6 GiB of memory)."); err != nil {
				return err
			}

			return a.runDemo(cmd.Context())
		},
	}

	a.addYesFlag(cmd)
	cmd.Flags().BoolVar(
		&check, "check", false,
		"report whether this computer can run the demo, and change nothing",
	)

	return cmd
}

// demoRunner is one run of the demo.
type demoRunner struct {
	app        *app
	executable string
	cache      string
	env        [][2]string
	start      time.Time
	timeline   [][2]string // events and their times
	kubeconfig string
}

func (a *app) runDemo(ctx context.Context) error {
	cache, err := a.cacheDir()
	if err != nil {
		return err
	}

	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find slipway's own program: %w", err)
	}

	d := &demoRunner{
		app:        a,
		executable: self,
		cache:      cache,
		kubeconfig: demoKubeconfig(cache),
		start:      a.Now(),
	}

	for _, step := range []func(context.Context) error{d.provideAssets, d.startRegion, d.createCluster, d.applyCluster, d.waitForAPI, d.waitUntilHealthy} {
		if err := step(ctx); err != nil {
			return err
		}
	}

	return d.printResult(ctx)
}

// runSlipway prints a slipway command as it would be typed, and runs it.
func (d *demoRunner) runSlipway(ctx context.Context, args ...string) error {
	fmt.Fprintf(
		d.app.Stderr,
		"\n%s\n",
		d.app.colorText(d.app.Stderr, cyan, "$ slipway "+strings.Join(args, " ")),
	)

	return d.runProgram(ctx, d.executable, args...)
}

func (d *demoRunner) runProgram(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = d.app.Stdout, baseStream(d.app.Stderr), os.Environ()
	for _, kv := range d.env {
		cmd.Env = append(cmd.Env, kv[0]+"="+kv[1])
	}

	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}

	return nil
}

// recordTime adds an event to the timeline.
func (d *demoRunner) recordTime(what string) {
	d.timeline = append(
		d.timeline,
		[2]string{what, fmt.Sprintf("%.1f s", d.app.Now().Sub(d.start).Seconds())},
	)
}

// provideAssets provides what machines download: see chooseAssets.
func (d *demoRunner) provideAssets(ctx context.Context) error {
	defer d.recordTime("assets")
	source, buildErr := findAssetSource("")
	if buildErr == nil {
		_, buildErr = exec.LookPath("go")
	}

	found := assetsFound{canBuild: buildErr == nil}
	catalog, missing := build.FindCatalog(assetsDir(d.cache))
	if missing == nil {
		found.present = true
		found.downloaded = fetch.IsFetched(catalog)
	} else if unreachable := d.app.checkUpstream(ctx); unreachable != nil {
		d.app.printMessage("upstream's releases cannot be downloaded: %v", unreachable)
	} else {
		found.canDownload = true
	}

	switch chooseAssets(found) {
	case downloadAssets:
		err := d.runSlipway(ctx, "assets", "fetch")
		if err == nil || !found.canBuild || ctx.Err() != nil {
			return err
		}

		d.app.printMessage("the download failed, so the assets are built from source")
		return d.runSlipway(ctx, "assets", "build", "--source", source)
	case buildAssets:
		return d.runSlipway(ctx, "assets", "build", "--source", source)
	case noAssets:
		return withHint(
			fmt.Errorf("%w; they cannot be built: %w", missing, buildErr),
			"slipway demo --check lists what is missing",
		)
	case useAssets:
	}

	return nil
}

// checkUpstream finds out whether upstream's releases, or those of the catalogue of --assets, can be downloaded.
func (a *app) checkUpstream(ctx context.Context) error {
	catalog, err := manifests.LoadCatalog(ctx, a.catalogSource())
	if err != nil {
		return err
	}

	return fetch.CheckReachable(ctx, http.DefaultTransport, catalog, runtime.GOARCH)
}

// startRegion starts the region and configures the following commands for it.
func (d *demoRunner) startRegion(ctx context.Context) error {
	if err := d.runSlipway(ctx, "region", "start"); err != nil {
		return err
	}

	st, err := region.GetStatus(d.cache)
	if err != nil {
		return err
	}

	d.env = append(
		st.Settings.Env(d.cache),
		[2]string{"SLIPWAY_STATE", demoState},
		[2]string{"SLIPWAY_CACHE", d.cache},
	)

	d.recordTime("region")

	return nil
}

// createCluster creates the state store and the manifests of the cluster, unless an earlier run did.
func (d *demoRunner) createCluster(ctx context.Context) error {
	if err := d.runSlipway(ctx, "state", "init", "--yes"); err != nil {
		return err
	}

	if d.clusterExists(ctx) {
		return nil
	}

	return d.runSlipway(
		ctx,
		"create",
		"cluster",
		demoCluster,
		"--zones",
		"us-east-1a,us-east-1b,us-east-1c",
		"--yes",
	)
}

func (d *demoRunner) clusterExists(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, d.executable, "get", "clusters", demoCluster, "-o", "json")
	cmd.Env = os.Environ()
	for _, kv := range d.env {
		cmd.Env = append(cmd.Env, kv[0]+"="+kv[1])
	}

	return cmd.Run() == nil
}

func (d *demoRunner) applyCluster(ctx context.Context) error {
	if err := d.runSlipway(ctx, "apply", demoCluster, "--yes"); err != nil {
		return err
	}

	d.recordTime("applied")
	return d.runSlipway(ctx, "export", "kubeconfig", demoCluster, "--kubeconfig", d.kubeconfig)
}

// waitForAPI waits for the first response of the Kubernetes API through the load balancer.
func (d *demoRunner) waitForAPI(ctx context.Context) error {
	env := map[string]string{}
	for _, kv := range d.env {
		env[kv[0]] = kv[1]
	}

	cfg, err := config.LoadDefaultConfig(
		ctx,
		config.WithRegion(env["AWS_REGION"]),
		config.WithBaseEndpoint(env["AWS_ENDPOINT_URL"]),
		config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(
				env["AWS_ACCESS_KEY_ID"],
				env["AWS_SECRET_ACCESS_KEY"],
				"",
			),
		),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsfix.AddBodyMiddleware}),
	)
	if err != nil {
		return fmt.Errorf("find the region's settings: %w", err)
	}

	return d.pollReadyz(ctx, cfg)
}

// waitUntilHealthy waits until the cluster is healthy.
func (d *demoRunner) waitUntilHealthy(ctx context.Context) error {
	if err := d.runSlipway(ctx, "validate", "cluster", demoCluster, "--wait", demoTimeout.String()); err != nil {
		return err
	}

	d.recordTime("all Ready")
	return nil
}

// demoKubeconfig returns the path of the kubeconfig of the demo's cluster.
func demoKubeconfig(cache string) string { return filepath.Join(cache, "demo.kubeconfig") }

// printResult prints the nodes and pods with kubectl, the timeline, and the next steps.
func (d *demoRunner) printResult(ctx context.Context) error {
	kubectl, err := d.findKubectl()
	if err != nil {
		return err
	}

	fmt.Fprintf(d.app.Stderr, "\n%s\n", d.app.colorText(d.app.Stderr, cyan, "$ kubectl get nodes -o wide"))
	if err := d.runProgram(ctx, kubectl, "--kubeconfig", d.kubeconfig, "get", "nodes", "-o", "wide"); err != nil {
		return err
	}

	fmt.Fprintf(d.app.Stderr, "\n%s\n", d.app.colorText(d.app.Stderr, cyan, "$ kubectl get pods -A"))
	if err := d.runProgram(ctx, kubectl, "--kubeconfig", d.kubeconfig, "get", "pods", "-A"); err != nil {
		return err
	}

	d.app.printMessage("\ntimeline, from the start of 'slipway demo':")
	for _, m := range d.timeline {
		d.app.printMessage("  %-18s %8s", m[0], m[1])
	}

	d.app.printMessage("\nthe cluster keeps running:")
	d.app.printMessage("  export KUBECONFIG=%s", d.kubeconfig)
	d.app.printMessage(
		"  eval \"$(%s region env)\"; export SLIPWAY_STATE=%s   # for slipway and aws",
		d.executable,
		demoState,
	)

	d.app.printMessage(
		"  %s region destroy --yes                           # removes everything",
		d.executable,
	)

	return nil
}

// findKubectl returns the path of kubectl: from PATH, else from the built assets.
func (d *demoRunner) findKubectl() (string, error) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}

	found, err := filepath.Glob(
		filepath.Join(
			d.cache,
			"assets",
			"files",
			"dl.k8s.io",
			"release",
			"*",
			"bin",
			"linux",
			"*",
			"kubectl",
		),
	)
	if err != nil || len(found) == 0 {
		return "", withHint(
			errors.New("no kubectl found on this machine or among the assets"),
			"make assets",
		)
	}

	// An asset need not be executable: run an executable copy.
	newest := slices.Max(found)
	path := filepath.Join(d.cache, "kubectl")
	body, err := os.ReadFile(newest)
	if err != nil {
		return "", fmt.Errorf("copy kubectl: %w", err)
	}

	if err := os.WriteFile(path, body, 0o755); err != nil { //nolint:gosec // a program that everybody may run, in a folder of our own
		return "", fmt.Errorf("copy kubectl: %w", err)
	}

	return path, nil
}

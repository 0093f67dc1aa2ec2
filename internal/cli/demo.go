// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/region"
)

const (
	demoCluster = "demo"
	demoState   = "s3://slipway-demo"
	demoWait    = 10 * time.Minute
)

func newDemoCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make a highly available cluster in a region on this machine",
		Long: `Build the assets (in a checkout of slipway), start the local region and make examples/ha.yaml in it: three
control-plane machines and two workers over three zones, with real etcd and Kubernetes. Each step is one of slipway's
own commands, printed as you would type it. The cluster is left running; 'slipway region destroy' removes it. Running
it again takes up where it stopped.` + exitStatus(),
		Example: "  slipway demo --yes",
		GroupID: groupLocal,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.confirm("A region with five machines will run on this computer (about 6 GiB of memory)."); err != nil {
				return err
			}
			return a.demo(cmd.Context())
		},
	}
	a.yesFlag(cmd)
	return cmd
}

// demoRun is one run of the demo: its times, and where it keeps things.
type demoRun struct {
	a          *app
	self       string
	cache      string
	env        [][2]string
	start      time.Time
	marks      [][2]string // what happened, and when
	kubeconfig string
}

func (a *app) demo(ctx context.Context) error {
	cache, err := a.cacheDir()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find slipway's own program: %w", err)
	}
	d := &demoRun{a: a, self: self, cache: cache, kubeconfig: demoKubeconfig(cache), start: a.Now()}
	for _, step := range []func(context.Context) error{d.assets, d.region, d.create, d.apply, d.api, d.ready} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.show(ctx)
}

// slipway runs one of slipway's own commands, shown as it would be typed.
func (d *demoRun) slipway(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.a.Stderr, "\n%s\n", d.a.paint(d.a.Stderr, cyan, "$ slipway "+strings.Join(args, " ")))
	return d.run(ctx, d.self, args...)
}

func (d *demoRun) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = d.a.Stdout, d.a.Stderr, os.Environ()
	for _, kv := range d.env {
		cmd.Env = append(cmd.Env, kv[0]+"="+kv[1])
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return nil
}

// mark notes that something has happened by now.
func (d *demoRun) mark(what string) {
	d.marks = append(d.marks, [2]string{what, fmt.Sprintf("%.1f s", d.a.Now().Sub(d.start).Seconds())})
}

// assetsSource is the folder of nested modules in a checkout of slipway, where the demo is usually run.
const assetsSource = "assets"

// assets builds what machines download, in a checkout; elsewhere it must be there.
func (d *demoRun) assets(ctx context.Context) error {
	defer d.mark("assets")
	if _, err := os.Stat(filepath.Join(assetsSource, "kubernetes", "go.mod")); err == nil {
		return d.slipway(ctx, "assets", "build", "--source", assetsSource)
	}
	catalogue := filepath.Join(d.cache, "assets", "catalog.yaml")
	if _, err := os.Stat(catalogue); errors.Is(err, fs.ErrNotExist) {
		return withHint(errors.New("the assets are not built yet: there is no "+catalogue), "run make demo in a checkout of slipway, which builds them")
	}
	return nil
}

// region starts the region and points the commands that follow at it.
func (d *demoRun) region(ctx context.Context) error {
	if err := d.slipway(ctx, "region", "start"); err != nil {
		return err
	}
	st, err := region.GetStatus(d.cache)
	if err != nil {
		return err
	}
	d.env = append(st.Settings.Env(d.cache), [2]string{"SLIPWAY_STATE", demoState}, [2]string{"SLIPWAY_CACHE", d.cache})
	d.mark("region")
	return nil
}

// create makes the state store and the cluster's manifests, unless an earlier run did.
func (d *demoRun) create(ctx context.Context) error {
	if err := d.slipway(ctx, "state", "init", "--yes"); err != nil {
		return err
	}
	if d.exists(ctx) {
		return nil
	}
	return d.slipway(ctx, "create", "cluster", demoCluster, "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
}

func (d *demoRun) exists(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, d.self, "get", "clusters", demoCluster, "-o", "json")
	cmd.Env = os.Environ()
	for _, kv := range d.env {
		cmd.Env = append(cmd.Env, kv[0]+"="+kv[1])
	}
	return cmd.Run() == nil
}

func (d *demoRun) apply(ctx context.Context) error {
	if err := d.slipway(ctx, "apply", demoCluster, "--yes"); err != nil {
		return err
	}
	d.mark("applied")
	return d.slipway(ctx, "export", "kubeconfig", demoCluster, "--kubeconfig", d.kubeconfig)
}

// api waits for the first answer of the Kubernetes API through the load balancer.
func (d *demoRun) api(ctx context.Context) error {
	env := map[string]string{}
	for _, kv := range d.env {
		env[kv[0]] = kv[1]
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(env["AWS_REGION"]), config.WithBaseEndpoint(env["AWS_ENDPOINT_URL"]),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], "")))
	if err != nil {
		return fmt.Errorf("find the region's settings: %w", err)
	}
	return d.awaitAPI(ctx, cfg)
}

// ready waits until the whole cluster is well.
func (d *demoRun) ready(ctx context.Context) error {
	if err := d.slipway(ctx, "validate", "cluster", demoCluster, "--wait", demoWait.String()); err != nil {
		return err
	}
	d.mark("all Ready")
	return nil
}

// demoKubeconfig is the file that lets kubectl into the demo's cluster.
func demoKubeconfig(cache string) string { return filepath.Join(cache, "demo.kubeconfig") }

// show prints the nodes as kubectl does, the timeline, and how to go on.
func (d *demoRun) show(ctx context.Context) error {
	kubectl, err := d.kubectl()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.a.Stderr, "\n%s\n", d.a.paint(d.a.Stderr, cyan, "$ kubectl get nodes -o wide"))
	if err := d.run(ctx, kubectl, "--kubeconfig", d.kubeconfig, "get", "nodes", "-o", "wide"); err != nil {
		return err
	}
	fmt.Fprintf(d.a.Stderr, "\n%s\n", d.a.paint(d.a.Stderr, cyan, "$ kubectl get pods -A"))
	if err := d.run(ctx, kubectl, "--kubeconfig", d.kubeconfig, "get", "pods", "-A"); err != nil {
		return err
	}
	d.a.say("\ntimeline, from the start of 'slipway demo':")
	for _, m := range d.marks {
		d.a.say("  %-18s %8s", m[0], m[1])
	}
	d.a.say("\nthe cluster goes on running:")
	d.a.say("  export KUBECONFIG=%s", d.kubeconfig)
	d.a.say("  eval \"$(%s region env)\"; export SLIPWAY_STATE=%s   # for slipway and aws", d.self, demoState)
	d.a.say("  %s region destroy --yes                           # removes everything", d.self)
	return nil
}

// kubectl is this machine's, else the one among the built assets.
func (d *demoRun) kubectl() (string, error) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	found, err := filepath.Glob(filepath.Join(d.cache, "assets", "files", "dl.k8s.io", "release", "*", "bin", "linux", "*", "kubectl"))
	if err != nil || len(found) == 0 {
		return "", withHint(errors.New("there is no kubectl on this machine, nor among the assets"), "make assets")
	}
	// As an asset it is a file that need not be executable: run a copy that is.
	newest := slices.Max(found)
	path := filepath.Join(d.cache, "kubectl")
	body, err := os.ReadFile(newest)
	if err != nil {
		return "", fmt.Errorf("copy kubectl: %w", err)
	}
	if err := os.WriteFile(path, body, 0o755); err != nil { //nolint:gosec // a program
		return "", fmt.Errorf("copy kubectl: %w", err)
	}
	return path, nil
}

// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// renderRuns is how often rendering is measured. The shortest time counts, since other load only adds to it.
const renderRuns = 7

// slipwayTool runs the program that make build created.
type slipwayTool struct {
	program  program
	emulator *proxy
	image    string
	assets   string // a catalogue with digests: there is no registry here
}

func newSlipwayTool(t *testing.T, p *proxy, image string, credentials []string) slipwayTool {
	t.Helper()
	x := slipwayTool{program: newSlipway(t, p, credentials...), emulator: p, image: image}
	x.assets = assettest.WritePinnedCatalog(t, x.program.dir)
	x.program.mustRun(t, []int{0}, "state", "init", "--yes")
	return x
}

func (x slipwayTool) prepare(t *testing.T, name string, groups int) {
	t.Helper()
	if err := os.WriteFile(x.file(name), []byte(clusterManifest(name, x.image, groups)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (x slipwayTool) file(name string) string { return filepath.Join(x.program.dir, name+".yaml") }

func (x slipwayTool) run(t *testing.T, c command, name string) processResult {
	t.Helper()
	switch c {
	case createCommand:
		return x.program.mustRun(t, []int{0}, "create", "-f", x.file(name), "--assets", x.assets, "--yes")
	case renderCommand:
		return x.program.fastestRun(t, x.emulator, "render", "terraform", name)
	case applyCommand:
		return x.apply(t, name)
	case planCommand: // moto's defects show as changes; they are only read
		return x.program.mustRun(t, []int{0, 2}, "plan", name)
	default:
		return x.program.mustRun(t, []int{0}, "delete", "cluster", name, "--yes")
	}
}

// apply applies the cluster. moto has a race, after which it responds with an HTML page. Then apply runs again, as
// an operator would, and adds both durations.
func (x slipwayTool) apply(t *testing.T, name string) processResult {
	t.Helper()
	r := x.program.runProcess(t, "apply", name, "--yes")
	if r.code != 0 && strings.Contains(r.errs, "error while deserializing xml error response") {
		t.Logf("moto failed, apply is run again: %s", clipTail(r.errs))
		again := x.program.mustRun(t, []int{0}, "apply", name, "--yes")
		again.start, again.wall = r.start, r.wall+again.wall
		return again
	}
	if r.code != 0 {
		t.Fatalf("slipway apply %s: exit status %d\n%s", name, r.code, clipTail(r.errs))
	}
	return r
}

// kopsTool runs a kops binary.
type kopsTool struct {
	program  program
	emulator *proxy
	image    string
	key      string // the file with the public key
	channel  string // the file with the channel
	files    string // the address of a server with the hashes of all files
}

// kopsState is the state store of kops.
const kopsState = "kops-bench"

// kopsChannel is a channel without recommendations: kops would fetch its own from the internet.
const kopsChannel = `spec:
  cluster:
    kubernetesVersion: v1.32.1
    networking: {}
  kubernetesVersions:
  - range: ">=1.30.0"
    recommendedVersion: 1.32.1
    requiredVersion: 1.30.0
`

func newKopsTool(t *testing.T, p *proxy, path, image string, credentials []string) kopsTool {
	t.Helper()
	dir := t.TempDir()
	files := hashServer(t)
	x := kopsTool{emulator: p, image: image, key: sshKey(t), channel: filepath.Join(dir, "channel"), files: files}
	x.program = program{path: path, dir: dir, env: append(p.env(),
		"S3_ACCESS_KEY_ID=test", "S3_SECRET_ACCESS_KEY=test", "S3_REGION=us-east-1", "KOPS_STATE_STORE=s3://"+kopsState,
		"KOPS_FEATURE_FLAGS=-ImageDigest", "KOPS_BASE_URL="+files, "KOPS_RUN_TOO_NEW_VERSION=1")}
	x.program.env = append(x.program.env, credentials...)
	makeBucket(t, p.url, kopsState)
	if err := os.WriteFile(x.channel, []byte(kopsChannel), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("kops: %s", strings.TrimSpace(x.program.mustRun(t, []int{0}, "version").out))
	return x
}

// cluster returns the name of a cluster of kops. It cuts names of target groups at 25 characters; with one character less here
// there would be two hyphens in a row, which moto refuses.
func (x kopsTool) cluster(name string) string { return name + "s.k8s.local" }

func (x kopsTool) file(name string) string { return filepath.Join(x.program.dir, name+".yaml") }

// prepare has kops print the manifests of the cluster, with one group of workers in each of three zones, and copies
// a group until there are enough.
func (x kopsTool) prepare(t *testing.T, name string, groups int) {
	t.Helper()
	printed := x.program.mustRun(t, []int{0}, "create", "cluster", x.cluster(name), "--dry-run", "-o", "yaml",
		"--zones", "us-east-1a,us-east-1b,us-east-1c", "--control-plane-count", "3", "--node-count", "3",
		"--control-plane-size", "t3.large", "--node-size", "t3.large", "--topology", "private", "--bastion",
		"--networking", "flannel", "--dns", "none", "--image", x.image, "--ssh-public-key", x.key,
		"--channel", "file://"+x.channel, "--kubernetes-version", "1.32.1").out
	// Otherwise kops waits for the hashes of files of the internet.
	printed = strings.Replace(printed, "\nspec:\n", "\nspec:\n  assets:\n    fileRepository: "+x.files+"\n", 1)
	documents := strings.Split(printed, "\n---\n")
	const template = "nodes-us-east-1a"
	for _, d := range documents {
		if !strings.Contains(d, "  name: "+template+"\n") {
			continue
		}
		for i := fewGroups; i < groups; i++ {
			documents = append(documents, strings.ReplaceAll(d, template, fmt.Sprintf("nodes-%d", i)))
		}
		break
	}
	if err := os.WriteFile(x.file(name), []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (x kopsTool) run(t *testing.T, c command, name string) processResult {
	t.Helper()
	cluster := x.cluster(name)
	switch c {
	case createCommand:
		r := x.program.mustRun(t, []int{0}, "create", "-f", x.file(name))
		key := x.program.mustRun(t, []int{0}, "create", "secret", "--name", cluster, "sshpublickey", "admin", "-i", x.key)
		r.wall += key.wall
		return r
	case renderCommand:
		return x.program.fastestRun(t, x.emulator, "update", "cluster", cluster, "--target", "terraform", "--out", x.program.dir+"/tf")
	case applyCommand:
		return x.program.mustRun(t, []int{0}, "update", "cluster", cluster, "--yes", "--create-kube-config=false")
	case planCommand:
		return x.program.mustRun(t, []int{0}, "update", "cluster", cluster, "--create-kube-config=false")
	default:
		return x.program.mustRun(t, []int{0}, "delete", "cluster", cluster, "--yes")
	}
}

// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

// The bundle of the comparison: this many add-ons with this many objects each.
const (
	bundleAddons  = 10
	bundleObjects = 40
	// lastAddon leaves with the second version.
	lastAddon = "bundle-09"
)

// addonVersion is what differs between the versions of the bundle.
type addonVersion struct {
	number string
	value  string // of all ConfigMaps that the version changes, one in each add-on
	addons int    // the last ones leave
	// dropped is set if each add-on has no Role, no RoleBinding and one ConfigMap less.
	dropped bool
}

// addonObjects returns the objects of one add-on: a namespace, an account with rights, and ConfigMaps. They are of kinds that need no
// controller, since the API server of the test has none.
func addonObjects(n int, v addonVersion, labels string) string {
	name := fmt.Sprintf("bundle-%02d", n)
	var b strings.Builder
	object := func(api, kind, object, rest string) {
		namespace := ", namespace: " + name
		if kind == "Namespace" {
			namespace = ""
		}
		fmt.Fprintf(&b, "---\napiVersion: %s\nkind: %s\nmetadata: {name: %s%s%s}\n%s", api, kind, object, namespace, labels, rest)
	}
	object("v1", "Namespace", name, "")
	object("v1", "ServiceAccount", "account", "")
	maps := bundleObjects - 4 //nolint:mnd // the other objects of an add-on
	if v.dropped {
		maps--
	} else {
		object("rbac.authorization.k8s.io/v1", "Role", "reader", "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n")
		object("rbac.authorization.k8s.io/v1", "RoleBinding", "reader",
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}\nsubjects: [{kind: ServiceAccount, name: account, namespace: "+name+"}]\n")
	}
	for m := range maps {
		value := "same"
		if m == 0 {
			value = v.value
		}
		object("v1", "ConfigMap", fmt.Sprintf("settings-%02d", m), "data: {key: "+value+"}\n")
	}

	return b.String()
}

// addonTool applies versions of the bundle to one API server.
type addonTool struct {
	name  string
	apply func(t *testing.T, v addonVersion) processResult
	// code of an apply after somebody has changed a field; -1: any.
	conflict int
}

// apiProxy counts the requests to an API server.
type apiProxy struct {
	kubeconfig            string
	reads, dryRuns, write atomic.Int64
}

func newAPIProxy(t *testing.T) *apiProxy {
	t.Helper()
	api := apitest.Start(t)
	to, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(filepath.Dir(api.Kubeconfig), "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	p := &apiProxy{}
	next := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			p.reads.Add(1)
		case strings.Contains(r.URL.RawQuery, "dryRun=All"):
			p.dryRuns.Add(1)
		default:
			p.write.Add(1)
		}
		next.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, server.URL, api.Token)
	if err := os.WriteFile(p.kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	return p
}

func (p *apiProxy) reset() { p.reads.Store(0); p.dryRuns.Store(0); p.write.Store(0) }

// newKubectl returns the kubectl of the built assets.
func newKubectl(t *testing.T, kubeconfig string) program {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "kubectl")
	if err := os.Symlink(assettest.Program(t, "kubernetes", "bin/kubernetes"), path); err != nil {
		t.Fatal(err)
	}

	return program{path: path, dir: dir, env: []string{"KUBECONFIG=" + kubeconfig}}
}

// newHelm builds Helm's own program, as tools/helm.mod pins it.
func newHelm(t *testing.T, kubeconfig string) program {
	t.Helper()
	x := program{path: os.Getenv("HELM"), dir: t.TempDir(), env: []string{"KUBECONFIG=" + kubeconfig}}
	if x.path != "" {
		return x
	}
	x.path = filepath.Join(x.dir, "helm")
	build := exec.Command("go", "build", "-modfile=tools/helm.mod", "-o", x.path, "helm.sh/helm/v3/cmd/helm")
	build.Dir = repositoryRoot(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: Helm cannot be built: %v\n%s", err, clipTail(string(out)))
	}

	return x
}

func writeBundle(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func newSlipwayAddons(t *testing.T, kubeconfig string) addonTool {
	t.Helper()
	x := program{path: filepath.Join(repositoryRoot(t), "bin", "slipway"), dir: t.TempDir()}
	if _, err := os.Stat(x.path); err != nil {
		t.Skip("SKIPPED: there is no bin/slipway: make build")
	}
	x.env = []string{
		"SLIPWAY_STATE=file://" + x.dir + "/state", "SLIPWAY_STATE_KEY=" + x.dir + "/key",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_REGION=us-east-1",
	}
	x.mustRun(t, []int{0}, "state", "init", "--yes")
	x.mustRun(t, []int{0}, "create", "-f", filepath.Join(repositoryRoot(t), "examples/ha.yaml"), "--assets", assettest.WritePinnedCatalog(t, x.dir), "--yes")

	return addonTool{name: "slipway addons apply --prune", conflict: 1, apply: func(t *testing.T, v addonVersion) processResult {
		t.Helper()
		var channel strings.Builder
		channel.WriteString("apiVersion: slipway.dev/v1alpha1\nkind: AddonChannel\nmetadata: {name: bench}\nspec:\n  addons:\n")
		for n := range v.addons {
			file := fmt.Sprintf("bundle-%02d.yaml", n)
			writeBundle(t, filepath.Join(x.dir, file), addonObjects(n, v, ""))
			fmt.Fprintf(&channel, "  - {name: bundle-%02d, version: %s, source: {manifest: %s}}\n", n, v.number, file)
		}
		writeBundle(t, filepath.Join(x.dir, "channel.yaml"), channel.String())

		return x.runProcess(t, "addons", "apply", "demo", "-f", "channel.yaml", "--kubeconfig", kubeconfig, "--prune", "--yes")
	}}
}

func newKubectlPrune(t *testing.T, kubeconfig string) addonTool {
	t.Helper()
	x := newKubectl(t, kubeconfig)

	return addonTool{name: "kubectl apply --prune", conflict: -1, apply: func(t *testing.T, v addonVersion) processResult {
		t.Helper()
		var all strings.Builder
		for n := range v.addons {
			all.WriteString(addonObjects(n, v, ", labels: {bundle: bench}"))
		}
		writeBundle(t, filepath.Join(x.dir, "all.yaml"), all.String())

		return x.runProcess(t, "apply", "-f", "all.yaml", "--prune", "-l", "bundle=bench")
	}}
}

func newHelmUpgrade(t *testing.T, kubeconfig string) addonTool {
	t.Helper()
	x := newHelm(t, kubeconfig)

	return addonTool{name: "helm upgrade --install", conflict: -1, apply: func(t *testing.T, v addonVersion) processResult {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(x.dir, "chart")); err != nil {
			t.Fatal(err)
		}
		writeBundle(t, filepath.Join(x.dir, "chart/Chart.yaml"), "apiVersion: v2\nname: bench\nversion: "+v.number+"\n")
		for n := range v.addons {
			writeBundle(t, filepath.Join(x.dir, fmt.Sprintf("chart/templates/bundle-%02d.yaml", n)), addonObjects(n, v, ""))
		}

		return x.runProcess(t, "upgrade", "--install", "bench", "chart", "--namespace", "default")
	}}
}

// TestAddonTools applies one bundle with Slipway, 'kubectl apply --prune' and Helm, each to a bare API server of its own: what it takes, and
// what is left of what the second version does not have.
func TestAddonTools(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	for name, start := range map[string]func(*testing.T, string) addonTool{
		"slipway": newSlipwayAddons, "kubectl": newKubectlPrune, "helm": newHelmUpgrade,
	} {
		t.Run(name, func(t *testing.T) {
			p := newAPIProxy(t)
			compareAddonTool(t, p, start(t, p.kubeconfig))
		})
	}
}

func compareAddonTool(t *testing.T, p *apiProxy, tool addonTool) {
	t.Helper()
	kubectl := newKubectl(t, p.kubeconfig)
	first := addonVersion{number: "1.0.0", value: "first", addons: bundleAddons}
	second := addonVersion{number: "2.0.0", value: "second", addons: bundleAddons - 1, dropped: true}
	run := func(what string, v addonVersion) processResult {
		t.Helper()
		p.reset()
		r := tool.apply(t, v)
		fmt.Printf("COUNT addons: %s: %s: %.1f s (processor %.1f s), %d reads, %d dry runs, %d writes, exit status %d\n",
			tool.name, what, r.wall.Seconds(), r.cpu.Seconds(), p.reads.Load(), p.dryRuns.Load(), p.write.Load(), r.code)

		return r
	}
	must := func(what string, v addonVersion) {
		t.Helper()
		if r := run(what, v); r.code != 0 {
			t.Fatalf("%s: %s%s", what, clipTail(r.out), clipTail(r.errs))
		}
	}
	must("the first apply", first)
	must("the second apply, without changes", first)

	kubectl.mustRun(t, []int{0}, "create", "configmap", "-n", lastAddon, "of-a-user", "--from-literal=key=value")
	must("another version", second)
	left := kubectl.mustRun(t, []int{0}, "get", "role,rolebinding,configmap,serviceaccount,namespace", "-A", "-o", "json")
	fmt.Printf("COUNT addons: %s: %s\n", tool.name, countLeftovers(t, left.out))

	kubectl.mustRun(t, []int{0}, "patch", "configmap", "-n", "bundle-00", "settings-01", "-p", `{"data":{"key":"changed"}}`)
	if r := run("an apply after a manual change", second); tool.conflict >= 0 && r.code != tool.conflict {
		t.Errorf("exit status %d after a manual change: %s%s", r.code, clipTail(r.out), clipTail(r.errs))
	}
	value := kubectl.mustRun(t, []int{0}, "get", "configmap", "-n", "bundle-00", "settings-01", "-o", "jsonpath={.data.key}")
	fmt.Printf("COUNT addons: %s: the value that was changed by hand is %q\n", tool.name, value.out)
}

// countLeftovers says what is left of what the second version does not have, and what became of an object of a user in the
// namespace of the add-on that left.
func countLeftovers(t *testing.T, list string) string {
	t.Helper()
	var all struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Name, Namespace   string
				DeletionTimestamp string
			}
		}
	}
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		t.Fatal(err)
	}
	dropped, gone, namespace := 0, 0, "is gone"
	for _, o := range all.Items {
		inBundle := strings.HasPrefix(o.Metadata.Namespace, "bundle-")
		last := o.Metadata.Namespace == lastAddon
		switch {
		case o.Kind == "Namespace" && o.Metadata.Name == lastAddon && o.Metadata.DeletionTimestamp == "":
			namespace = "stays"
		case o.Kind == "Namespace" && o.Metadata.Name == lastAddon:
			namespace = "is being deleted"
		case last && o.Metadata.Name != "of-a-user" && o.Metadata.Name != "default":
			gone++
		case inBundle && (o.Metadata.Name == "reader" || o.Metadata.Name == "settings-35"):
			dropped++
		}
	}

	return fmt.Sprintf("%d of %d objects are left that add-ons no longer have, %d of %d of an add-on that left; its namespace, with an object of a user, %s",
		dropped, 3*(bundleAddons-1), gone, bundleObjects-1, namespace)
}

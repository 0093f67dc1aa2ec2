// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

var errKilled = errors.New("the agent was killed")

// followBench is a machine whose components remember the files that they read when they started, and a store with
// revisions. It survives the death of its agent.
type followBench struct {
	t        *testing.T
	dir      string
	template *Agent
	bundle   pki.Bundle
	boot     node.Document
	role     v1alpha1.Role

	mu        sync.Mutex
	now       time.Time
	running   map[string]map[string]string // component to path to content
	restarts  []string
	broken    map[string]string // component to a text that it does not start with
	lock      follow.Lock
	revisions node.Revisions
	signed    []byte
	reads     int
	documents *bodies
	crashes   bool // broken components exit instead of answering
	// failLater is the number of health checks after which a component stops working with a new document.
	failLater map[string]int
	// noImage is an image that cannot be pulled.
	noImage   string
	killAfter int // steps until the agent is killed; negative: never
}

func newFollowBench(t *testing.T) *followBench {
	t.Helper()
	return newFollowBenchLike(t, testAgent(t))
}

// newFollowBenchLike returns a bench with the keys of another agent, because generating keys takes long.
func newFollowBenchLike(t *testing.T, template *Agent) *followBench {
	t.Helper()
	b := &followBench{
		t: t, dir: t.TempDir(), now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), running: map[string]map[string]string{},
		broken: map[string]string{}, documents: &bodies{by: map[string][]byte{}}, killAfter: -1, role: v1alpha1.RoleControlPlane,
	}
	b.template = template
	b.bundle = template.bundle
	body, err := template.doc.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if b.boot, err = node.ParseDocument(body); err != nil {
		t.Fatal(err)
	}
	return b
}

// start starts an agent, which converges its machine.
func (b *followBench) start() (*Agent, *follower) {
	b.t.Helper()
	a := b.template.withDocument(b.boot)
	a.Root = &HostFS{Dir: b.dir, beforeWrite: func(string) error { return b.tick() }}
	a.Now = b.clock
	a.Wait = b.wait
	a.Run = b
	a.Open = b.documents
	a.Changing = b
	sum := b.publish(b.boot)
	a.Boot.Document = node.Download{URL: b.url(node.DocumentKey("demo", b.role, "control-plane", sum)), SHA256: sum}
	doc, err := a.loadDocument(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	a.doc = doc
	b.converge(a)
	return a, b.newFollower(a)
}

func (b *followBench) newFollower(a *Agent) *follower {
	return &follower{
		agent: a, turns: b, control: func(_, to *Agent) componentControl { return benchControl{b, to} },
		notSafe: func(context.Context) error { return nil }, nudges: make(chan struct{}, 1),
	}
}

func (b *followBench) converge(a *Agent) {
	b.t.Helper()
	if err := a.prepareHost(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	if b.role == v1alpha1.RoleWorker {
		b.convergeWorker(a)
		return
	}
	changed, err := a.writeControlPlane()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := a.startControlPlane(b.t.Context(), changed); err != nil {
		b.t.Fatal(err)
	}
	slot, _ := a.doc.Slot("a")
	if err := (&etcdMember{agent: a, slot: slot}).startEtcd(b.t.Context(), etcd.StartOptions{}); err != nil {
		b.t.Fatal(err)
	}
	if err := a.writeStaticPods(); err != nil {
		b.t.Fatal(err)
	}
	for _, component := range node.RestartOrder() {
		if b.running[component] == nil || b.podChanged(component) {
			b.startComponent(component)
		}
	}
}

// convergeWorker does the same for a worker.
func (b *followBench) convergeWorker(a *Agent) {
	b.t.Helper()
	files, err := a.machineFiles()
	if err != nil {
		b.t.Fatal(err)
	}
	changed, err := a.writeFiles(files)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := a.startServices(b.t.Context(), changed); err != nil {
		b.t.Fatal(err)
	}
	for _, component := range []string{node.ComponentContainerd, node.ComponentKubelet} {
		if b.running[component] == nil {
			b.startComponent(component)
		}
	}
}

// podChanged reports whether the kubelet restarts a static pod because its manifest changed.
func (b *followBench) podChanged(component string) bool {
	for path, body := range b.running[component] {
		if podOfManifest(path) == component && b.read(path) != body {
			return true
		}
	}
	return false
}

func (b *followBench) read(path string) string {
	body, err := os.ReadFile(b.dir + path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(body)
}

// startComponent lets a component read its files.
func (b *followBench) startComponent(component string) {
	b.running[component] = map[string]string{}
	for _, path := range (&HostFS{Dir: b.dir}).walk(b.t) {
		if slices.Contains(componentsReading(path), component) {
			b.running[component][path] = b.read(path)
		}
	}
}

// walk returns the paths of all files.
func (r *HostFS) walk(t *testing.T) []string {
	t.Helper()
	var out []string
	var list func(dir string)
	list = func(dir string) {
		entries, err := os.ReadDir(r.Path(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			path := strings.TrimSuffix(dir, "/") + "/" + e.Name()
			if e.IsDir() {
				list(path)
			} else {
				out = append(out, path)
			}
		}
	}
	list("/")
	return out
}

func (b *followBench) tick() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.killAfter == 0 {
		return errKilled
	}
	if b.killAfter > 0 {
		b.killAfter--
	}
	return nil
}

func (b *followBench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *followBench) wait(ctx context.Context, d time.Duration) error {
	if d == renewInterval {
		<-ctx.Done()
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
	return ctx.Err()
}

// Run implements Runner.
func (b *followBench) Run(_ context.Context, name string, args ...string) (string, error) {
	if err := b.tick(); err != nil {
		return "", err
	}
	if name == "ctr" && b.noImage != "" && args[len(args)-1] == b.noImage {
		return "", errors.New("not found")
	}
	if name == "systemctl" && args[0] == "is-active" {
		return "active\n", nil
	}
	if name == "systemctl" && args[0] == "restart" {
		b.startComponent(args[len(args)-1])
	}
	return "", nil
}

func (b *followBench) url(key string) string { return "s3://bucket/state/" + key }

// publish stores a document and returns its hash.
func (b *followBench) publish(d node.Document) string {
	b.t.Helper()
	body, err := d.Marshal()
	if err != nil {
		b.t.Fatal(err)
	}
	sum := hashOf(body)
	b.documents.by[b.url(node.DocumentKey("demo", b.role, "control-plane", sum))] = body
	return sum
}

// revise makes a document the current one of the group.
func (b *followBench) revise(d node.Document) {
	b.t.Helper()
	for _, document := range []node.Document{b.boot, d} {
		if b.revisions.Groups != nil && document.Group == b.boot.Group && cmp.Equal(document, b.boot) && !cmp.Equal(d, b.boot) {
			continue // the first revision was published
		}
		b.revisions = node.NewRevisions(node.RevisionsInput{
			Cluster: "demo", Role: b.role, Former: b.revisions, FirstSerial: 1,
			Documents: map[string]string{"control-plane": b.publish(document)},
		})
	}
	signed, err := b.revisions.Sign(b.bundle.CAs[pki.KubernetesCA].Key())
	if err != nil {
		b.t.Fatal(err)
	}
	b.signed = signed
}

// renew publishes the current documents again.
func (b *followBench) renew() {
	b.t.Helper()
	current := b.revisions.Groups["control-plane"].Document
	b.revisions = node.NewRevisions(node.RevisionsInput{
		Cluster: "demo", Role: b.role, Former: b.revisions, FirstSerial: 1,
		Documents: map[string]string{"control-plane": current}, Renewed: []string{"control-plane"},
	})
	signed, err := b.revisions.Sign(b.bundle.CAs[pki.KubernetesCA].Key())
	if err != nil {
		b.t.Fatal(err)
	}
	b.signed = signed
}

// ReadIfChanged implements ChangingReader.
func (b *followBench) ReadIfChanged(_ context.Context, url, etag string) ([]byte, string, error) {
	b.reads++
	switch {
	case url != b.url(node.RevisionsKey("demo", b.role)):
		return nil, "", errors.New("another object: " + url)
	case b.signed == nil:
		return nil, "", fmt.Errorf("get %s: access denied, or there is none: %w", url, store.ErrNotFound)
	case etag == hashOf(b.signed):
		return nil, etag, nil
	}
	return b.signed, hashOf(b.signed), nil
}

func (b *followBench) claim(_ context.Context, c follow.Claim) (follow.Turn, string, error) {
	if err := b.tick(); err != nil {
		return "", "", err
	}
	turn, reason := b.lock.Decide(c, b.clock())
	switch turn {
	case follow.TurnTake:
		b.lock = b.lock.Take(c, b.clock())
	case follow.TurnFree:
		b.lock = b.lock.Join(c, b.clock())
	case follow.TurnWait, follow.TurnRefused:
	}
	return turn, reason, nil
}

func (b *followBench) change(_ context.Context, how func(follow.Lock) follow.Lock) error {
	if err := b.tick(); err != nil {
		return err
	}
	b.lock = how(b.lock)
	return nil
}

// benchControl restarts the components of a bench.
type benchControl struct {
	*followBench
	to *Agent
}

func (c benchControl) Restart(_ context.Context, component string, _ map[string]bool) error {
	if err := c.tick(); err != nil {
		return err
	}
	c.restarts = append(c.restarts, component)
	c.startComponent(component)
	return nil
}

func (c benchControl) Check(_ context.Context, component string) error {
	if left, ok := c.failLater[component]; ok && !cmp.Equal(c.to.doc, c.boot) {
		c.failLater[component] = left - 1
		if left <= 0 {
			return errors.New("its node has MemoryPressure")
		}
	}
	text, broken := c.broken[component]
	for _, body := range c.running[component] {
		if broken && strings.Contains(body, text) {
			if c.crashes {
				return crashLoopError{maxExits}
			}
			return errors.New("unknown value " + text)
		}
	}
	return nil
}

// follow lets the agent follow until it has nothing to do.
func (b *followBench) follow(a *Agent, f *follower) error {
	for range 10 {
		b.now = b.now.Add(revisionInterval)
		changed, err := f.step(b.t.Context())
		if err != nil {
			return err
		}
		if changed == nil {
			continue
		}
		a.doc = changed.document
		f = b.newFollower(a)
	}
	return nil
}

// check checks that the machine has a document: its files, and what the components read when they started.
func (b *followBench) check(a *Agent, want node.Document) {
	b.t.Helper()
	if diff := cmp.Diff(want, a.doc, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("document (-want +got):\n%s", diff)
	}
	files, err := a.withDocument(want).machineFiles()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range files {
		if b.read(file.Path) != string(file.Body) {
			b.t.Errorf("%s is not that of the document", file.Path)
		}
		for _, component := range componentsReading(file.Path) {
			if b.role == v1alpha1.RoleWorker && podOfManifest(file.Path) == "" && component != node.ComponentKubelet && component != node.ComponentContainerd {
				continue // a worker does not run it
			}
			if b.running[component][file.Path] != string(file.Body) {
				b.t.Errorf("%s has not read %s of the document", component, file.Path)
			}
		}
	}
	if b.role == v1alpha1.RoleWorker {
		return
	}
	for _, pair := range controlPlanePairs(want, a.Boot, a.instance, etcdUID) {
		if needsRenewal(a.Root, pair, b.now) {
			b.t.Errorf("certificate %s is not that of the document", pair.path)
		}
	}
	if b.lock.Holder != "" {
		b.t.Errorf("the lock is held by %s", b.lock.Holder)
	}
}

// imageAt returns an image of upstream with a made-up digest.
func imageAt(tag string) string {
	return "registry.k8s.io/" + tag + "@sha256:" + strings.Repeat("ab", 32)
}

// nextDocument returns the boot document with changes of all kinds of components.
func (b *followBench) nextDocument() node.Document {
	d := b.boot
	d.Kubelet.EvictionHard = map[string]string{"memory.available": "321Mi"}
	d.Images = maps.Clone(d.Images)
	d.Images["pause"] = imageAt("pause:v2")
	if b.role == v1alpha1.RoleWorker {
		return d
	}
	d.Etcd.HeartbeatIntervalMS = 250
	d.Etcd.ElectionTimeoutMS = 2500
	d.APISANs = []string{"api.example.com"}
	d.Images["kube-scheduler"] = imageAt("kube-scheduler:v2")
	return d
}

func (b *followBench) status(a *Agent) report.Revision { return a.documentStatus.Load().Revision }

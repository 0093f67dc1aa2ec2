// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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
	if err := a.prepareHost(); err != nil {
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

// ReadIfChanged implements ChangingReader.
func (b *followBench) ReadIfChanged(_ context.Context, url, etag string) ([]byte, string, error) {
	b.reads++
	switch {
	case url != b.url(node.RevisionsKey("demo", b.role)):
		return nil, "", errors.New("another object: " + url)
	case b.signed == nil:
		return nil, "", store.ErrNotFound
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
		a.bundle = changed.bundle
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

// nextDocument returns the boot document with changes of all kinds of components.
func (b *followBench) nextDocument() node.Document {
	d := b.boot
	d.Kubelet.EvictionHard = map[string]string{"memory.available": "321Mi"}
	d.Images = maps.Clone(d.Images)
	d.Images["pause"] = "registry.k8s.io/pause:v2"
	if b.role == v1alpha1.RoleWorker {
		return d
	}
	d.Etcd.HeartbeatIntervalMS = 250
	d.Etcd.ElectionTimeoutMS = 2500
	d.APISANs = []string{"api.example.com"}
	d.Images["kube-scheduler"] = "registry.k8s.io/kube-scheduler:v2"
	return d
}

func (b *followBench) status(a *Agent) report.Revision { return a.documentStatus.Load().Revision }

func TestFollow(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	if err := b.follow(a, f); err != nil || b.status(a).State != report.RevisionUnknown {
		t.Fatalf("without revisions: %v, %+v", err, b.status(a))
	}
	next := b.nextDocument()
	b.revise(next)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if diff := cmp.Diff([]string{"containerd", "kubelet", "etcd", "kube-scheduler"}, b.restarts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	want := report.Revision{State: report.RevisionCurrent, Serial: 2, Followed: b.publish(next), Desired: b.publish(next)}
	if diff := cmp.Diff(want, b.status(a)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	again, _ := b.start() // the machine reboots
	b.check(again, next)
}

// TestFollowWhatNeedsAMachine: the rest of a revision is applied, and the report names what is missing.
func TestFollowWhatNeedsAMachine(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	partly := b.nextDocument()
	whole := partly
	whole.NodeLabels = map[string]string{"example.com/team": "a"}
	b.revise(whole)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, partly)
	want := report.Revision{
		State: report.RevisionPending, Serial: 2, Followed: b.publish(whole), Desired: b.publish(whole),
		Pending: []string{"nodeLabels.example.com/team"},
	}
	if diff := cmp.Diff(want, b.status(a)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if b.status(a).NeedsNoMachine(b.publish(whole)) {
		t.Error("the machine needs no replacement")
	}
}

// TestRefuse: a value that a component does not start with is rolled back on this machine and reported, and is not
// tried again, neither here nor on another machine. A correction is applied.
func TestRefuse(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	bad := b.nextDocument()
	b.broken["etcd"] = "heartbeat-interval=250"
	b.revise(bad)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	got := b.status(a)
	if got.State != report.RevisionRefused || !strings.Contains(got.Cause, "etcd: does not work 1m0s after its restart: unknown value") {
		t.Errorf("status %+v", got)
	}
	if c := a.conditions.Conditions(); len(c) != 1 || c[0].Component != report.NodeDocument || c[0].State != report.Warning {
		t.Errorf("conditions %+v", c)
	}
	restarts := len(b.restarts)
	if err := b.follow(a, f); err != nil || len(b.restarts) != restarts {
		t.Errorf("tried again: %v, %v", err, b.restarts)
	}
	other := follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: b.publish(bad)}
	if turn, reason := b.lock.Decide(other, b.now); turn != follow.TurnRefused || !strings.Contains(reason, "machine "+a.instance.ID+": etcd:") {
		t.Errorf("another machine: %s %q", turn, reason)
	}
	good := b.nextDocument()
	good.Etcd.HeartbeatIntervalMS = 300
	good.Etcd.ElectionTimeoutMS = 3000
	b.revise(good)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, good)
	if c := a.conditions.Conditions(); len(c) != 0 {
		t.Errorf("conditions %+v", c)
	}
}

// TestRefusedElsewhere: a machine does not try what another one of its group could not apply.
func TestRefusedElsewhere(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	next := b.nextDocument()
	b.revise(next)
	b.lock = b.lock.Release(follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: b.publish(next)}, "kubelet: broken")
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); got.State != report.RevisionRefused || got.Cause != "refused by machine i-2: kubelet: broken" || b.restarts != nil {
		t.Errorf("status %+v, restarts %v", got, b.restarts)
	}
}

// TestWaitForTurn: nothing restarts while another machine is being changed, or while something does not work. What
// restarts nothing is applied at once.
func TestWaitForTurn(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.revise(b.nextDocument())
	b.lock = b.lock.Take(follow.Claim{Machine: "i-2"}, b.now.Add(24*time.Hour))
	if err := b.follow(a, f); err != nil || b.restarts != nil {
		t.Fatalf("%v, %v", err, b.restarts)
	}
	if got := b.status(a); got.State != report.RevisionWaiting || got.Cause != "machine i-2 is being changed" {
		t.Errorf("status %+v", got)
	}
	b.lock = follow.Lock{}
	f.notSafe = func(context.Context) error { return errors.New("2 of 3 API servers serve") }
	if err := b.follow(a, f); err != nil || b.restarts != nil || b.status(a).Cause != "2 of 3 API servers serve" {
		t.Errorf("%v, %v, %+v", err, b.restarts, b.status(a))
	}
	live := b.boot
	live.APISANs = []string{"api.example.com"}
	b.revise(live)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, live)
}

// TestForgedRevisions: what is not signed with the cluster's CA is not followed, and neither is an older revision.
func TestForgedRevisions(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	next := b.nextDocument()
	b.revise(b.boot)
	old := b.signed
	b.revise(next)
	right := b.signed
	forged, err := b.revisions.Sign(testBundle(t).CAs[pki.KubernetesCA].Key())
	if err != nil {
		t.Fatal(err)
	}
	b.signed = forged
	if err := b.follow(a, f); !errors.Is(err, pki.ErrSignature) {
		t.Errorf("got %v", err)
	}
	b.check(a, b.boot)
	b.signed = right
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	b.signed = old
	f = b.newFollower(a)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.status(a); !strings.Contains(got.Cause, "is older than revision") {
		t.Errorf("status %+v", got)
	}
}

// TestReadsAreRare: an idle machine reads the revisions once a minute, and at once after a nudge.
func TestReadsAreRare(t *testing.T) {
	b := newFollowBench(t)
	_, f := b.start()
	b.revise(b.boot)
	for range 10 * int(time.Minute/followInterval) {
		if _, err := f.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(followInterval)
	}
	if b.reads != 10 {
		t.Errorf("%d reads in ten minutes", b.reads)
	}
	last := f.nudgeIfChanged("", "a")
	last = f.nudgeIfChanged(last, "a")
	if f.nudgeIfChanged(last, "") != "a" {
		t.Error("the last nudge is forgotten")
	}
	for range 3 {
		if _, err := f.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.reads != 11 {
		t.Errorf("%d reads after a nudge", b.reads)
	}
}

// TestKilledAtEveryStep kills the agent before each of its steps (each write of a file, command, restart
// and change of the lock), and its next process after some steps again. The third process ends with the whole new document,
// or with the whole old one if a component does not work with the new one, in the files and in what runs.
func TestKilledAtEveryStep(t *testing.T) {
	for _, bench := range []func(*testing.T) *followBench{newFollowBench, newWorkerBench} {
		template := bench(t)
		for _, broken := range []string{"", node.ComponentKubelet, node.ComponentScheduler} {
			if template.role == v1alpha1.RoleWorker && broken == node.ComponentScheduler {
				continue
			}
			steps := 0
			for finished := false; !finished; steps++ {
				finished = killAtStep(t, template, broken, steps)
			}
			t.Logf("COUNT %s: killed before each of %d steps (broken: %q)", template.role, steps, broken)
			if steps < 10 {
				t.Errorf("only %d steps", steps)
			}
		}
	}
}

// brokenTexts are what components do not start with.
func brokenTexts() map[string]string {
	return map[string]string{
		node.ComponentContainerd: "pause:v2", node.ComponentKubelet: "321Mi", node.ComponentEtcd: "heartbeat-interval=250",
		node.ComponentScheduler: "kube-scheduler:v2",
	}
}

// killAtStep kills the agent before a step, and reports whether it finished before.
func killAtStep(t *testing.T, like *followBench, broken string, step int) bool {
	t.Helper()
	b := newFollowBenchLike(t, like.template)
	b.role = like.role
	b.boot = like.boot
	next := b.nextDocument()
	want := next
	if broken != "" {
		b.broken[broken] = brokenTexts()[broken]
		want = b.boot
	}
	a, f := b.start()
	b.revise(next)
	b.killAfter = step
	_ = b.follow(a, f)
	finished := b.killAfter > 0
	b.killAfter = -1
	b.now = b.now.Add(time.Second)
	a, f = b.start()
	b.killAfter = step * 7 % 23
	_ = b.follow(a, f)
	b.killAfter = -1
	b.now = b.now.Add(time.Second)
	a, f = b.start()
	if err := b.follow(a, f); err != nil {
		t.Fatalf("killed before step %d: %v", step, err)
	}
	b.check(a, want)
	if refused := b.status(a).State == report.RevisionRefused; refused != (broken != "") {
		t.Errorf("status %+v", b.status(a))
	}
	if t.Failed() {
		t.Fatalf("%s killed before step %d, broken: %q", b.role, step, broken)
	}
	return finished
}

// newWorkerBench returns a bench of a worker.
func newWorkerBench(t *testing.T) *followBench {
	t.Helper()
	b := newFollowBench(t)
	b.role = v1alpha1.RoleWorker
	b.boot.Role = v1alpha1.RoleWorker
	b.boot.ClusterID = ""
	b.boot.Slots = nil
	b.boot.Etcd = node.EtcdSettings{}
	b.boot.APISANs = nil
	b.boot.Store = node.MachineStore{}
	b.boot.Join = node.JoinPolicy{}
	b.boot.Trust = node.TrustBundle{KubernetesCA: b.boot.Trust.KubernetesCA}
	return b
}

// TestFirstWorkerSoaks: the first worker of a group proves a revision only after some time without trouble; another one
// goes ahead at once then, and a refusal of a later one stops the others.
func TestFirstWorkerSoaks(t *testing.T) {
	b := newWorkerBench(t)
	a, f := b.start()
	f.soak = canarySoak
	next := b.nextDocument()
	b.revise(next)
	begin := b.now
	b.now = b.now.Add(revisionInterval)
	changed, err := f.step(t.Context())
	if err != nil || changed == nil || len(b.lock.Proven) != 1 || b.lock.Holder != "" {
		t.Fatalf("%v, %v, %+v", changed, err, b.lock)
	}
	if took := b.now.Sub(begin) - revisionInterval; took < canarySoak || took > 2*canarySoak {
		t.Errorf("it was proven after %s", took)
	}
	a.doc = changed.document
	b.check(a, next)

	late := newFollowBenchLike(t, b.template)
	late.role = b.role
	late.boot = b.boot
	late.lock = b.lock
	a, f = late.start()
	late.broken["kubelet"] = "321Mi"
	late.revise(next)
	if err := late.follow(a, f); err != nil {
		t.Fatal(err)
	}
	late.check(a, b.boot)
	third := follow.Claim{Machine: "i-3", Group: "control-plane", Serial: 2, Document: b.publish(next), InParallel: true}
	if turn, reason := late.lock.Decide(third, late.now); turn != follow.TurnRefused {
		t.Errorf("after a later machine refused it, another one is told %s %q", turn, reason)
	}
}

// TestTroubleDuringTheSoak: a threshold that puts the node under pressure some seconds after the kubelet has started
// reaches no other machine.
func TestTroubleDuringTheSoak(t *testing.T) {
	b := newWorkerBench(t)
	a, f := b.start()
	f.soak = canarySoak
	b.failLater = map[string]int{"kubelet": 15}
	b.revise(b.nextDocument())
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "its node has MemoryPressure") {
		t.Errorf("status %+v", got)
	}
	if len(b.lock.Proven) != 0 || len(b.lock.Refused) != 1 {
		t.Errorf("lock %+v", b.lock)
	}
}

// TestMissingImage: nothing is changed for an image that cannot be pulled.
func TestMissingImage(t *testing.T) {
	for _, bench := range []func(*testing.T) *followBench{newFollowBench, newWorkerBench} {
		b := bench(t)
		a, f := b.start()
		b.noImage = "registry.k8s.io/pause:v2"
		b.revise(b.nextDocument())
		if err := b.follow(a, f); err != nil {
			t.Fatal(err)
		}
		b.check(a, b.boot)
		if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "pull image registry.k8s.io/pause:v2") || b.restarts != nil {
			t.Errorf("status %+v, restarts %v", got, b.restarts)
		}
	}
}

// TestFailedRestoration: when a component does not work with the former document either, the others are restored, the
// process ends, and the next one restarts what the change had restarted. The revision is not tried again.
func TestFailedRestoration(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.broken["etcd"] = "ExecStart"
	b.revise(b.nextDocument())
	err := b.follow(a, f)
	if !isUnrestored(err) || !strings.Contains(err.Error(), "restore the former node document: etcd: does not work") {
		t.Fatalf("got %v", err)
	}
	if a.documentState.Refused.Serial != 2 || !slices.Contains(a.documentState.Attempt.Restarts, "etcd") {
		t.Errorf("state %+v", a.documentState)
	}
	if len(b.lock.Refused) != 1 {
		t.Errorf("lock %+v", b.lock)
	}
	delete(b.broken, "etcd")
	b.running["etcd"] = map[string]string{"stale": "process"}
	a, f = b.start()
	b.check(a, b.boot)
	restarts := len(b.restarts)
	if err := b.follow(a, f); err != nil || len(b.restarts) != restarts {
		t.Errorf("tried again: %v, %v", err, b.restarts[restarts:])
	}
	if b.status(a).State != report.RevisionRefused || a.documentState.Attempt.Serial != 0 {
		t.Errorf("status %+v, state %+v", b.status(a), a.documentState)
	}
}

// TestOldTurnProvesNothing: an agent that was killed while it held the turn for one revision says nothing about the next
// one when it releases the turn.
func TestOldTurnProvesNothing(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.revise(b.boot)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.lock = b.lock.Take(follow.Claim{Machine: a.instance.ID}, b.now)
	b.revise(b.nextDocument())
	f = b.newFollower(a)
	f.releaseOldTurn(t.Context(), b.revisions.Groups["control-plane"])
	if b.lock.Holder != "" || len(b.lock.Proven)+len(b.lock.Refused) != 0 || !f.released {
		t.Errorf("lock %+v", b.lock)
	}
}

// TestLostTurn: a machine whose turn another one may have restarts nothing else, and restores its former document.
func TestLostTurn(t *testing.T) {
	b := newFollowBench(t)
	a, _ := b.start()
	to := a.withDocument(b.nextDocument())
	turn := &keptTurn{}
	calls := 0
	tr := transition{
		from: a, to: to, control: func(_, to *Agent) componentControl { return benchControl{b, to} },
		mayGoOn: func() error {
			if calls++; calls > 2 {
				turn.lost.Store(true)
			}
			return turn.check()
		},
	}
	err := tr.run(t.Context())
	if _, ok := errors.AsType[rolledBackError](err); !ok || !strings.Contains(err.Error(), "lost its turn") {
		t.Errorf("got %v", err)
	}
	b.check(a, b.boot)
	if slices.Contains(b.restarts, "etcd") {
		t.Errorf("restarts %v", b.restarts)
	}
}

// TestKeepTurn: a turn that another machine has taken is lost, and so is one that cannot be renewed.
func TestKeepTurn(t *testing.T) {
	for name, c := range map[string]struct {
		holder string
		fails  bool
		lost   bool
	}{"held": {"", false, false}, "taken": {"i-other", false, true}, "unreachable": {"", true, true}} {
		b := newFollowBench(t)
		a, f := b.start()
		b.lock = b.lock.Take(follow.Claim{Machine: a.instance.ID}, b.now)
		if c.holder != "" {
			b.lock.Holder = c.holder
		}
		rounds := make(chan struct{}, 10)
		a.Wait = func(ctx context.Context, d time.Duration) error {
			select {
			case <-rounds:
				b.mu.Lock()
				defer b.mu.Unlock()
				b.now = b.now.Add(d)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		f.turns = failingTurns{b, c.fails}
		turn := f.keepTurn(t.Context(), node.Revision{Serial: 2, Document: "x"}, true)
		for range 5 {
			rounds <- struct{}{}
		}
		for len(rounds) > 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		turn.stop()
		if (turn.check() != nil) != c.lost {
			t.Errorf("%s: %v", name, turn.check())
		}
	}
}

// failingTurns may fail to change the lock.
type failingTurns struct {
	*followBench
	fails bool
}

func (f failingTurns) change(ctx context.Context, how func(follow.Lock) follow.Lock) error {
	if f.fails {
		return errors.New("no API")
	}
	return f.followBench.change(ctx, how)
}

// TestRestartsAgreeWithTheTable: the components that an agent restarts for a change are those that the table of
// classes, and so the plan and the documentation, promise.
func TestRestartsAgreeWithTheTable(t *testing.T) {
	b := newFollowBench(t)
	a, _ := b.start()
	other := testBundle(t)
	public, err := other.PublicPart()
	if err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*node.Document){
		"kubelet.kubeReserved.cpu":           func(d *node.Document) { d.Kubelet.KubeReserved = map[string]string{"cpu": "1"} },
		"kubelet.systemReserved.cpu":         func(d *node.Document) { d.Kubelet.SystemReserved = map[string]string{"cpu": "1"} },
		"kubelet.evictionHard.nodefs.inodes": func(d *node.Document) { d.Kubelet.EvictionHard = map[string]string{"nodefs.inodes": "1"} },
		"kubelet.evictionSoft.memory.available": func(d *node.Document) {
			d.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"}
			d.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "2m"}
		},
		"kubelet.maxPods":                     func(d *node.Document) { d.Kubelet.MaxPods = 33 },
		"kubelet.podPidsLimit":                func(d *node.Document) { d.Kubelet.PodPidsLimit = 99 },
		"kubelet.imageGCHighThresholdPercent": func(d *node.Document) { d.Kubelet.ImageGCHighThresholdPercent = 90 },
		"kubelet.imageGCLowThresholdPercent":  func(d *node.Document) { d.Kubelet.ImageGCLowThresholdPercent = 50 },
		"kubelet.containerLogMaxSize":         func(d *node.Document) { d.Kubelet.ContainerLogMaxSize = "50Mi" },
		"kubelet.containerLogMaxFiles":        func(d *node.Document) { d.Kubelet.ContainerLogMaxFiles = 7 },
		"kubelet.maxParallelImagePulls":       func(d *node.Document) { d.Kubelet.MaxParallelImagePulls = 9 },
		"kubelet.allowedUnsafeSysctls":        func(d *node.Document) { d.Kubelet.AllowedUnsafeSysctls = []string{"net.*"} },
		"sysctls.net.core.somaxconn":          func(d *node.Document) { d.Sysctls = map[string]string{"net.core.somaxconn": "5"} },
		"kubeAPIServer.maxRequestsInflight":   func(d *node.Document) { d.KubeAPIServer.MaxRequestsInflight = 800 },
		"kubeAPIServer.eventTTL":              func(d *node.Document) { d.KubeAPIServer.EventTTL = "3h" },
		"kubeAPIServer.auditLogMaxAge":        func(d *node.Document) { d.KubeAPIServer.AuditLogMaxAge = 40 },
		"kubeAPIServer.auditLogMaxBackup":     func(d *node.Document) { d.KubeAPIServer.AuditLogMaxBackup = 40 },
		"kubeAPIServer.auditLogMaxSize":       func(d *node.Document) { d.KubeAPIServer.AuditLogMaxSize = 400 },
		"kubeAPIServer.maxMutatingRequestsInflight": func(d *node.Document) {
			d.KubeAPIServer.MaxMutatingRequestsInflight = 300
		},
		"kubeAPIServer.defaultNotReadyTolerationSeconds": func(d *node.Document) {
			d.KubeAPIServer.DefaultNotReadyTolerationSeconds = 60
		},
		"kubeAPIServer.defaultUnreachableTolerationSeconds": func(d *node.Document) {
			d.KubeAPIServer.DefaultUnreachableTolerationSeconds = 60
		},
		"kubeControllerManager.terminatedPodGCThreshold": func(d *node.Document) {
			d.KubeControllerManager.TerminatedPodGCThreshold = 50
		},
		"kubeControllerManager.nodeMonitorGracePeriod": func(d *node.Document) {
			d.KubeControllerManager.NodeMonitorGracePeriod = "90s"
		},
		"kubeControllerManager.horizontalPodAutoscalerSyncPeriod": func(d *node.Document) {
			d.KubeControllerManager.HorizontalPodAutoscalerSyncPeriod = "30s"
		},
		"etcd.heartbeatIntervalMS":       func(d *node.Document) { d.Etcd.HeartbeatIntervalMS = 7 },
		"etcd.electionTimeoutMS":         func(d *node.Document) { d.Etcd.ElectionTimeoutMS = 70 },
		"images.pause":                   func(d *node.Document) { d.Images["pause"] = "x" },
		"images.kube-apiserver":          func(d *node.Document) { d.Images["kube-apiserver"] = "x" },
		"images.kube-controller-manager": func(d *node.Document) { d.Images["kube-controller-manager"] = "x" },
		"images.kube-scheduler":          func(d *node.Document) { d.Images["kube-scheduler"] = "x" },
		"images.coredns":                 func(d *node.Document) { d.Images["coredns"] = "x" },
		"apiSANs":                        func(d *node.Document) { d.APISANs = []string{"x"} },
		"join.workerRoles.more":          func(d *node.Document) { d.Join.WorkerRoles = map[string]string{"more": "x"} },
		"trust.kubernetesCA":             func(d *node.Document) { d.Trust.KubernetesCA = public.CAs[pki.KubernetesCA] },
		"trust.etcdPeerCA":               func(d *node.Document) { d.Trust.EtcdPeerCA = public.CAs[pki.EtcdPeerCA] },
		"trust.etcdClientCA":             func(d *node.Document) { d.Trust.EtcdClientCA = public.CAs[pki.EtcdClientCA] },
		"trust.frontProxyCA":             func(d *node.Document) { d.Trust.FrontProxyCA = public.CAs[pki.FrontProxyCA] },
		"trust.serviceAccountKeys":       func(d *node.Document) { d.Trust.ServiceAccountKeys = public.ServiceAccountKeys },
	} {
		next := b.boot
		next.Images = maps.Clone(next.Images)
		change(&next)
		was, err := a.machineFiles()
		if err != nil {
			t.Fatal(err)
		}
		will, err := a.withDocument(next).machineFiles()
		if err != nil {
			t.Fatal(err)
		}
		rule := node.ClassOf(field)
		want := slices.Clone(rule.Restarts)
		slices.Sort(want)
		got := componentsOf(changedFiles(was, will))
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s restarts %v, the table says %v", field, got, want)
		}
		if rule.Class == node.ClassReplace {
			t.Errorf("%s needs a new machine", field)
		}
	}
}

// putSysctl sets a kernel setting of the machine.
func (b *followBench) putSysctl(name, value string) {
	b.t.Helper()
	p := b.dir + "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(value+"\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestFollowSysctls: kernel settings are set without a restart, and set back if the rest of the document does not work or
// if the kernel does not have one of them.
func TestFollowSysctls(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.putSysctl("net.core.somaxconn", "4096")
	next := b.boot
	next.Sysctls = map[string]string{"net.core.somaxconn": "8192"}
	b.revise(next)
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.read("/proc/sys/net/core/somaxconn"); got != "8192" || b.restarts != nil {
		t.Errorf("somaxconn is %q, restarts %v", got, b.restarts)
	}
	if !strings.Contains(b.read("/etc/sysctl.d/99-slipway.conf"), "net.core.somaxconn = 8192\n") {
		t.Error("a boot would not set it")
	}

	missing := b.boot
	missing.Sysctls = map[string]string{"net.core.somaxconn": "1", "net.core.typo": "1"}
	b.revise(missing)
	if err := b.follow(a, b.newFollower(a)); err != nil {
		t.Fatal(err)
	}
	if got := b.status(a); got.State != report.RevisionRefused || !strings.Contains(got.Cause, "the kernel has no setting net.core.typo") {
		t.Errorf("status %+v", got)
	}
	b.check(a, next)

	broken := b.nextDocument()
	broken.Sysctls = map[string]string{"net.core.somaxconn": "2"}
	b.broken["etcd"] = "heartbeat-interval=250"
	b.revise(broken)
	if err := b.follow(a, b.newFollower(a)); err != nil {
		t.Fatal(err)
	}
	b.check(a, next)
	if got := b.read("/proc/sys/net/core/somaxconn"); got != "8192" {
		t.Errorf("after the return, somaxconn is %q", got)
	}
}

// TestJudgeExits: a program that exits once may have another reason than its new settings; one that exits again and again
// has none, and nobody waits for it.
func TestJudgeExits(t *testing.T) {
	u := restartedUnit{exits: 4, seen: 4}
	for i, step := range []struct {
		exits        int
		works, loops bool
	}{{4, true, false}, {5, false, false}, {5, true, false}, {6, false, false}, {7, false, true}, {7, false, true}} {
		err := u.judgeExits(step.exits)
		if (err == nil) != step.works || isCrashLoop(err) != step.loops {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// TestReadySince: the kubelet works when it has reported its node as Ready after its restart; what its predecessor
// reported does not count.
func TestReadySince(t *testing.T) {
	restart := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		`{}`: "its node has no Ready condition",
		`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-11-22T11:59:59Z"}]}}`:                   "it has not reported the state of its node yet",
		`{"status":{"conditions":[{"type":"Ready","status":"False","message":"down","lastHeartbeatTime":"2026-11-22T12:00:03Z"}]}}`: "its node is not Ready: down",
		`{"status":{"conditions":[{"type":"X"},{"type":"Ready","status":"True","lastHeartbeatTime":"2026-11-22T12:00:03Z"}]}}`:      "",
	} {
		var s nodeStatus
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		err := s.readySince(restart)
		if got := ""; err != nil {
			got = err.Error()
			if got != want {
				t.Errorf("%s: got %q, want %q", text, got, want)
			}
		} else if want != "" {
			t.Errorf("%s: no error, want %q", text, want)
		}
	}
}

// TestCrashLoopIsNotWaitedFor: the machine returns to its former document as soon as the component has exited repeatedly.
func TestCrashLoopIsNotWaitedFor(t *testing.T) {
	b := newFollowBench(t)
	a, f := b.start()
	b.broken["kubelet"] = "321Mi"
	b.crashes = true
	b.revise(b.nextDocument())
	begin := b.now
	if err := b.follow(a, f); err != nil {
		t.Fatal(err)
	}
	b.check(a, b.boot)
	if got := b.status(a); !strings.Contains(got.Cause, "kubelet: does not work: it exited 3 times") {
		t.Errorf("status %+v", got)
	}
	if took := b.now.Sub(begin) - 10*revisionInterval; took >= unitPatience {
		t.Errorf("waited %s", took)
	}
}

// TestWorkersDoNotAskAtOnce: a thousand workers that wait for the first one ask at most some 200 times a second.
func TestWorkersDoNotAskAtOnce(t *testing.T) {
	pauses := map[time.Duration]bool{}
	perSecond := 0.0
	for i := range 1000 {
		pause := pauseBetweenClaims(v1alpha1.RoleWorker, fmt.Sprintf("i-%017x", i))
		pauses[pause] = true
		perSecond += 1 / pause.Seconds()
		if pause > 15*time.Second {
			t.Errorf("a worker waits %s", pause)
		}
	}
	if perSecond > 200 || len(pauses) < 500 {
		t.Errorf("%.0f requests a second, %d different pauses", perSecond, len(pauses))
	}
}

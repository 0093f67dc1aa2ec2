// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// joinedRecord is the content of a slot's joined key.
type joinedRecord struct {
	// Volume is the id of the volume on which the member had data.
	Volume string `json:"volume"`
	// Generation is the number of the generation of the data; 0 in records of earlier versions, which are not signed.
	Generation int `json:"generation,omitempty"`
	// HandOver is the last hand-over of the slot; nil if there was none.
	HandOver *report.HandOver `json:"handOver,omitempty"`
}

// etcdMember is this machine's etcd member.
type etcdMember struct {
	agent *Agent
	store store.Store
	slot  node.Slot
	// volume is the id of the mounted volume; empty until it is known.
	volume string
	// recorded is the generation that the store has a record of for this slot.
	recorded atomic.Int64
	// comparison is the last comparison of the other members' data that was not favourable, and when it was made.
	comparison etcd.Comparison
	comparedAt time.Time
	// removedAt is when it was asked last whether the member was removed, or when it began to have no quorum.
	removedAt time.Time
	// handOver is the hand-over by which this machine got the volume, until the member has a quorum.
	handOver *report.HandOver
	// restorationWaits is what a restoration waits for; nil if it does not. It is safe for concurrent use.
	restorationWaits atomic.Pointer[string]
	// others returns what the other members say that answer with a quorum; nil: they are asked.
	others func(ctx context.Context, f etcd.Facts) []etcd.Member
}

// etcdWait returns the time between two decisions: less after a hand-over, since the member is missing.
func (m *etcdMember) etcdWait() time.Duration {
	if m.handOver != nil {
		return gateInterval
	}

	return volumeWait
}

func (m *etcdMember) hasData() bool { return m.agent.Root.Exists(etcd.DataDir + "/member") }

// newEtcdManager returns a client for etcd with its own client certificate.
func (a *Agent) newEtcdManager() etcd.Manager {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.EtcdClientCA))
	leaf := pki.Leaf{CN: "slipway-node", Usages: []pki.Usage{pki.ClientUsage}, TTL: LeafTTL}
	pair := newCertificateSource(a.bundle, pki.EtcdClientCA, leaf, a.Now)
	m := etcd.Manager{TLS: &tls.Config{
		RootCAs:              roots,
		MinVersion:           tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() },
	}}

	for _, s := range knownSlots(a) {
		m.Peers = append(m.Peers, newPeerOf(s))
	}

	return m
}

// managerOf returns a client for the members that have data of the newest generation: those with older data may
// still run, and are another cluster. One of them may also answer at the address of a slot whose new machine has the data.
func (m *etcdMember) managerOf(f etcd.Facts) etcd.Manager {
	manager := m.agent.newEtcdManager()
	if f.Generation != nil {
		manager.Peers = slices.DeleteFunc(manager.Peers, func(p etcd.Peer) bool {
			return p.Slot != f.Slot && !slices.Contains(f.Joined, p.Slot)
		})
		manager.ClusterID = f.Generation.ClusterID(slotNamed(m.agent, f.Generation.Slot).PeerURL)
	}

	return manager
}

// formerManager returns a client for the members that have not had data of the newest generation.
func (m *etcdMember) formerManager(f etcd.Facts) etcd.Manager {
	manager := m.agent.newEtcdManager()
	manager.Peers = slices.DeleteFunc(manager.Peers, func(p etcd.Peer) bool {
		return p.Slot == f.Slot || slices.Contains(f.Joined, p.Slot)
	})

	return manager
}

// mountVolume mounts the slot's volume and remembers its id.
func (m *etcdMember) mountVolume(ctx context.Context) error {
	known, err := m.readJoinedRecord(ctx)
	if err != nil {
		return err
	}

	before, err := readVolumeMount(m.agent.Root)
	if err != nil {
		return err
	}

	m.volume, err = m.newMounter(known).Mount(ctx)
	if err != nil {
		return err
	}

	if h := known.HandOver; h != nil && h.To == m.agent.instance.ID && !before.mounted {
		m.handOver = h
	}

	return m.agent.Root.MakeDir(etcd.DataDir, 0o700, etcdUID)
}

func (m *etcdMember) newMounter(known joinedRecord) VolumeMounter {
	a := m.agent

	return VolumeMounter{
		Client:      a.ec2Client(),
		Root:        a.Root,
		Run:         a.Run,
		Instance:    a.instance,
		Slot:        m.slot.Name,
		KnownVolume: known.Volume,
		ReservedFor: a.handOver.reservedFor(a.Now()),
	}
}

func (m *etcdMember) readJoinedRecord(ctx context.Context) (joinedRecord, error) {
	record, err := m.readJoined(ctx, m.slot.Name)
	if errors.Is(err, store.ErrNotFound) {
		return joinedRecord{}, nil
	}

	return record, err
}

// gatherFacts collects the facts for a decision. If the volume has data, it only asks whether a newer
// generation exists, and does without an answer: a member must be able to restart while S3 is unavailable.
func (m *etcdMember) gatherFacts(ctx context.Context) (etcd.Facts, error) {
	a := m.agent
	f := etcd.Facts{
		Slot:    m.slot.Name,
		Volume:  m.volume,
		HasData: m.hasData(),
		Slots:   slotNames(a),
	}
	if err := m.gatherData(ctx, &f); err != nil || f.HasData && !f.IsCopy() {
		return f, err
	}

	if err := requireWrites(m); err != nil {
		return f, err
	}

	marker, err := m.readMarker(ctx)
	if err != nil {
		return f, err
	}

	f.Marker = marker
	if err := gatherJoined(ctx, m, &f); err != nil {
		return f, err
	}

	volumes, err := a.ec2Client().ListVolumes(ctx)
	if err != nil {
		return f, err
	}

	f.Visible = visibleVolumes(volumes, m.slot.Name, m.volume)
	f.Added = readAdded(a.Root)
	m.askMembers(ctx, &f)

	return f, nil
}

// askMembers adds what the members say that answer with a quorum.
func (m *etcdMember) askMembers(ctx context.Context, f *etcd.Facts) {
	if f.Generation != nil || f.Marker == nil || f.Marker.Volumes[f.Slot] != f.Volume || slices.Contains(f.Joined, f.Slot) {
		f.Members = m.managerOf(*f).Members(ctx, f.Slot)
	}

	if g := f.Generation; g != nil && g.Slot == f.Slot {
		f.Former = m.formerManager(*f).Members(ctx, f.Slot)
	}

	if f.NeedsComparison() {
		f.Comparison = m.compareOthers(ctx, *f)
	}
}

// gatherData adds what is known of the data on the volume.
func (m *etcdMember) gatherData(ctx context.Context, f *etcd.Facts) error {
	var err error
	if f.DataVolume, err = m.dataVolume(); err != nil {
		return err
	}

	if err := m.gatherGeneration(ctx, f); err != nil {
		return err
	}

	return m.gatherAbsent(ctx, f)
}

// comparisonPause is the pause between two comparisons of the others' data: each member reads its database for it.
const comparisonPause = 30 * time.Second

// compareOthers compares the data of the other members, unless it has just done so and must not join.
func (m *etcdMember) compareOthers(ctx context.Context, f etcd.Facts) etcd.Comparison {
	if now := m.agent.Now(); m.comparison.Problem == "" || now.Sub(m.comparedAt) >= comparisonPause {
		m.comparison = m.managerOf(f).Compare(ctx, f.Slot)
		m.comparedAt = now
	}

	return m.comparison
}

// listJoined returns the slots whose member has had data, of a generation if there is one.
func (m *etcdMember) listJoined(ctx context.Context, g *etcd.Generation) ([]string, error) {
	if g != nil {
		restored, err := m.readRestored(ctx, g.Number)
		return restored.Signed, err
	}

	keys, err := m.store.List(ctx, node.EtcdJoinedKey(m.agent.doc.Cluster, ""))
	var out []string
	for _, k := range keys {
		out = append(out, path.Base(k))
	}

	return out, err
}

// visibleVolumes returns each slot's oldest usable volume. For this machine's slot it is the
// mounted volume, if there is one.
func visibleVolumes(volumes []Volume, slot, own string) map[string]string {
	out := map[string]string{}
	for _, v := range volumes {
		if out[v.Slot] == "" && (v.State == "available" || v.State == "in-use") {
			out[v.Slot] = v.ID
		}
	}

	if own != "" {
		out[slot] = own
	}

	return out
}

// readMarker returns the bootstrap marker, or nil if the cluster has none yet. One without a valid signature still says that the
// cluster was bootstrapped, but not with which volumes: no member starts a new cluster because of it. Agents of earlier versions made
// such markers, and clusters of theirs need them no more.
func (m *etcdMember) readMarker(ctx context.Context) (*etcd.BootstrapMarker, error) {
	var marker etcd.BootstrapMarker
	err := m.agent.readRecord(ctx, m.store, node.EtcdMarkerKey(m.agent.doc.Cluster), &marker)

	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case node.IsUntrusted(err):
		return &etcd.BootstrapMarker{}, nil
	case err != nil:
		return nil, err
	}

	return &marker, nil
}

// readJSONObject reads an object of the machine store that is JSON. The error wraps store.ErrNotFound if there is none.
func readJSONObject[T any](ctx context.Context, s store.Store, key string) (*T, error) {
	o, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}

	var out T
	if err := json.Unmarshal(o.Body, &out); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}

	return &out, nil
}

// decideAndAct takes one decision and executes it. It returns nil after etcd was started, and a
// notReadyError if another decision must follow.
func (m *etcdMember) decideAndAct(ctx context.Context) error {
	f, err := m.gatherFacts(ctx)
	if err != nil {
		return err
	}

	manager := m.managerOf(f)

	switch action := etcd.Decide(f); action.Type {
	case etcd.ActionCreateMarker:
		return m.createMarker(ctx, f)
	case etcd.ActionStartNew:
		return m.startNew(ctx, *f.Marker)
	case etcd.ActionStartExisting:
		return m.startEtcd(ctx, etcd.StartOptions{Members: m.initialCluster()})
	case etcd.ActionStartJoining:
		return m.startJoining(ctx, f)
	case etcd.ActionSetAside, etcd.ActionSetAsideCopy, etcd.ActionSetAsideLeft:
		return waitForNextDecision(m.setDataAside(ctx, action.Type, f), action.Reason)
	case etcd.ActionRestore:
		return waitForNextDecision(m.restoreBackup(ctx, f), action.Reason)

	case etcd.ActionRemoveMember:
		return waitForNextDecision(manager.RemoveMember(ctx, f.Slot, action.MemberID), action.Reason)
	case etcd.ActionAddLearner:
		return waitForNextDecision(m.addLearner(ctx, manager), action.Reason)
	default:
		return newNotReadyError("%s", action.Reason)
	}
}

// setDataAside moves data away that the member must not start with.
func (m *etcdMember) setDataAside(ctx context.Context, action etcd.ActionType, f etcd.Facts) error {
	switch action {
	case etcd.ActionSetAsideCopy:
		return m.setAsideCopy(ctx)
	case etcd.ActionSetAsideLeft:
		return m.setAsideLeft(ctx)
	default:
		return m.setAside(ctx, *f.Generation)
	}
}

// waitForNextDecision returns err, or a progressError with the reason, so that the caller decides
// again soon.
func waitForNextDecision(err error, reason string) error {
	if err != nil {
		return err
	}

	return progressError{notReadyError{reason}}
}

func (m *etcdMember) createMarker(ctx context.Context, f etcd.Facts) error {
	key := node.EtcdMarkerKey(m.agent.doc.Cluster)
	body, err := m.agent.signRecord(key, etcd.NewBootstrapMarker(rand.Text(), foundingVolumes(f)))
	if err != nil {
		return err
	}

	_, err = m.store.Create(ctx, key, body)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return err
	}

	return newNotReadyError("the etcd bootstrap marker was written; deciding again")
}

func (m *etcdMember) initialCluster() map[string]string {
	out := map[string]string{}
	for _, s := range m.agent.doc.Slots {
		out[s.Member] = s.PeerURL
	}

	return out
}

// currentCluster returns the membership as etcd's initial-cluster. A joining member must list it
// exactly, including itself.
func (m *etcdMember) currentCluster(members []etcd.Member) map[string]string {
	out := map[string]string{}
	for _, e := range members {
		if e.Slot != "" {
			s := slotNamed(m.agent, e.Slot)
			out[s.Member] = s.PeerURL
		}
	}

	return out
}

func (m *etcdMember) startEtcd(ctx context.Context, s etcd.StartOptions) error {
	a := m.agent
	environment := File{Path: etcd.EnvironmentFile, Body: etcd.RenderEnvironment(s), Mode: 0o600}
	changed, err := a.writeFiles(append(a.etcdFiles(m.slot), environment))
	if err != nil {
		return err
	}

	if err := a.reloadSystemd(ctx, changed); err != nil {
		return err
	}

	// The files differ only if an earlier process of the agent was stopped while it changed the member's settings, or if an
	// earlier version of the agent wrote them.
	again := isReadBy(node.ComponentEtcd, changed) || mustRestart(a, node.ComponentEtcd)
	if err := a.ensureUnitStarted(ctx, "etcd", again); err != nil {
		return err
	}

	return a.Root.RemoveAll(etcd.FormerPKIDir)
}

// etcdFiles returns the systemd unit of a slot's member and its settings.
func (a *Agent) etcdFiles(slot node.Slot) []File {
	c := etcd.Config{
		BinDir:      a.doc.BinDir(),
		Name:        slot.Member,
		Host:        slot.Host,
		PeerHosts:   peerHosts(a.doc),
		HeartbeatMS: a.doc.Etcd.HeartbeatIntervalMS,
		ElectionMS:  a.doc.Etcd.ElectionTimeoutMS,
		QuotaBytes:  a.doc.Etcd.QuotaBytes,
	}

	return []File{
		{Path: "/etc/systemd/system/etcd.service", Body: []byte(etcd.SystemdUnit(c)), Mode: 0o600},
		{Path: etcd.SettingsFile, Body: etcd.RenderSettings(c), Mode: 0o600},
	}
}

// recordGeneration records in the store that the member has data of a restored generation.
func (m *etcdMember) recordGeneration(ctx context.Context, generation int) error {
	if generation <= 1 || m.recorded.Load() == int64(generation) {
		return nil
	}

	if err := m.recordRestored(ctx, generation); err != nil {
		return err
	}

	m.recorded.Store(int64(generation))

	return nil
}

// recordJoined records in the store that the member has data, and rewrites the environment file so
// that systemd cannot start it without data.
func (m *etcdMember) recordJoined(ctx context.Context) error {
	if !m.hasData() {
		return newNotReadyError("etcd has not created its data yet")
	}

	if _, err := m.agent.Root.Write(File{
		Path: etcd.EnvironmentFile,
		Body: etcd.RenderEnvironment(etcd.StartOptions{Members: m.initialCluster()}),
		Mode: 0o600,
	}); err != nil {
		return err
	}

	if err := m.notePromotion(ctx, m.agent.newEtcdManager(), etcd.ClientURL); err != nil {
		return err
	}

	if m.volume == "" { // EC2 or S3 was unavailable when the agent started
		if err := m.mountVolume(ctx); err != nil {
			return err
		}
	}

	if err := m.recordVolume(); err != nil {
		return err
	}

	return m.recordData(ctx)
}

// recordData records in the store that the member has data of its generation, on its volume.
func (m *etcdMember) recordData(ctx context.Context) error {
	if m.volume == "" {
		return newNotReadyError("the etcd volume is not known yet")
	}

	generation, err := m.dataGeneration(etcd.DataDir)
	if err != nil {
		return err
	}

	if err := m.recordGeneration(ctx, generation); err != nil {
		return err
	}

	have, err := m.readJoinedRecord(ctx)
	if err != nil || have.Volume == m.volume && have.Generation == generation {
		return err
	}

	return m.writeJoinedRecord(ctx, joinedRecord{Volume: m.volume})
}

// writeJoinedRecord signs and replaces the slot's record in the store, with the generation of the data.
func (m *etcdMember) writeJoinedRecord(ctx context.Context, record joinedRecord) error {
	var err error
	if record.Generation, err = m.dataGeneration(etcd.DataDir); err != nil {
		return err
	}

	key := node.EtcdJoinedKey(m.agent.doc.Cluster, m.slot.Name)
	body, err := m.agent.signRecord(key, record)
	if err != nil {
		return err
	}

	_, err = m.store.Put(ctx, key, body)

	return err
}

// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/agent"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// attach gives a user one more policy.
func (l *lab) attach(user, name string, p iampolicy.Policy) {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	text, err := json.Marshal(p)
	l.check(err)

	made, err := api.CreatePolicy(l.Context(), &iam.CreatePolicyInput{PolicyName: &name, PolicyDocument: sdk.String(string(text))})
	l.check(err)

	_, err = api.AttachUserPolicy(l.Context(), &iam.AttachUserPolicyInput{UserName: &user, PolicyArn: made.Policy.Arn})
	l.check(err)
}

// machineOf is a machine of the cluster, with a session of its role.
type machineOf struct {
	*topologyLab
	caller

	instance, group, slot, role string
	isControlPlane              bool
}

// callAsMachines makes the calls of the agents as one machine of each role that Slipway has created.
func (l *topologyLab) callAsMachines() {
	l.Helper()
	for _, g := range l.scalingGroups() {
		l.awaitInstance(autoscaling.NewFromConfig(l.config(caller{})), *g.AutoScalingGroupName)
	}

	machines := l.machines()
	if len(machines) == 0 && l.cluster.Spec.CloudProvider.AWS.InstanceProfiles.Worker == "" {
		l.Fatal("no machine has a role")
	}

	for _, m := range machines {
		if m.isControlPlane {
			m.callAsControlPlane()
		} else {
			m.callAsWorker()
		}

		m.checkAllTried()
	}
}

// machines returns one machine for each role of the cluster.
func (l *topologyLab) machines() []machineOf {
	l.Helper()
	found, err := ec2.NewFromConfig(l.config(caller{})).DescribeInstances(l.Context(), &ec2.DescribeInstancesInput{
		Filters: []types.Filter{
			{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{l.name()}},
			{Name: sdk.String("instance-state-name"), Values: []string{"pending", "running"}},
		},
	})
	l.check(err)
	var out []machineOf
	prefix := model.RolePath(l.name(), regiontest.RegionName)

	for _, r := range found.Reservations {
		for _, i := range r.Instances {
			if i.IamInstanceProfile == nil || !strings.Contains(*i.IamInstanceProfile.Arn, prefix) {
				continue
			}

			tags := map[string]string{}
			for _, tag := range i.Tags {
				tags[*tag.Key] = *tag.Value
			}

			m := machineOf{
				topologyLab:    l,
				instance:       *i.InstanceId,
				group:          tags["aws:autoscaling:groupName"],
				slot:           tags["slipway.dev/etcd-slot"],
				role:           path.Base(*i.IamInstanceProfile.Arn), // roles have the names of their profiles
				isControlPlane: tags["slipway.dev/role"] == node.RoleTagControlPlane,
			}
			isKnown := func(other machineOf) bool { return other.role == m.role }
			if m.group != "" && tags["slipway.dev/role"] != "bastion" && !slices.ContainsFunc(out, isKnown) {
				m.caller = l.sessionOf(m.role)
				out = append(out, m)
			}
		}
	}

	return out
}

// sessionOf returns credentials of a role, with its permissions boundary. Only EC2 may assume the role, so an administrator
// changes its trust for a moment.
func (l *lab) sessionOf(role string) caller {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	found, err := api.GetRole(l.Context(), &iam.GetRoleInput{RoleName: &role})
	l.check(err)

	const name = "session-administrator"
	_, err = api.GetUser(l.Context(), &iam.GetUserInput{UserName: sdk.String(name)})
	if err != nil {
		l.user(name, nil)
		_, err = api.PutUserPolicy(l.Context(), &iam.PutUserPolicyInput{
			UserName: sdk.String(name), PolicyName: sdk.String("all"), PolicyDocument: sdk.String(anything),
		})
		l.check(err)
	}

	key, err := api.CreateAccessKey(l.Context(), &iam.CreateAccessKeyInput{UserName: sdk.String(name)})
	l.check(err)

	trust := func(document string) {
		_, err := api.UpdateAssumeRolePolicy(l.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: &role, PolicyDocument: &document})
		l.check(err)
	}
	trust(strings.Replace(selfmade, "user/operator", "user/"+name, 1))
	administrator := caller{key: *key.AccessKey.AccessKeyId, secret: *key.AccessKey.SecretAccessKey}
	got, err := sts.NewFromConfig(l.config(administrator)).AssumeRole(l.Context(), &sts.AssumeRoleInput{
		RoleArn: found.Role.Arn, RoleSessionName: sdk.String("i-0123456789abcdef0"),
	})
	l.check(err)
	trust(l.unescape(*found.Role.AssumeRolePolicyDocument))

	_, err = api.DeleteAccessKey(l.Context(), &iam.DeleteAccessKeyInput{UserName: sdk.String(name), AccessKeyId: key.AccessKey.AccessKeyId})
	l.check(err)

	return caller{
		key:    *got.Credentials.AccessKeyId,
		secret: *got.Credentials.SecretAccessKey,
		token:  *got.Credentials.SessionToken,
	}
}

// callAsWorker makes the calls of a worker's agent: it reads what it downloads.
func (m machineOf) callAsWorker() {
	m.Helper()
	m.pullImage()
	m.readObjects("agent/", "worker/")
}

// callAsControlPlane makes the calls of the agent of a control-plane machine.
func (m machineOf) callAsControlPlane() {
	m.Helper()
	sealed := m.readObjects("agent/", "controlplane/", "secrets/")
	m.useKeys(sealed)
	m.writeMarkers()
	m.useEC2()
	m.pullImage()
	scaling := autoscaling.NewFromConfig(m.config(m.caller))
	_, err := scaling.DescribeAutoScalingGroups(m.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []scalingtypes.Filter{{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{m.name()}}},
	})
	m.check(err)

	_, err = scaling.SetInstanceHealth(m.Context(), &autoscaling.SetInstanceHealthInput{
		InstanceId: &m.instance, HealthStatus: sdk.String("Healthy"), ShouldRespectGracePeriod: sdk.Bool(true),
	})
	m.check(err)

	for _, group := range m.workerGroups() { // one of their machines is repaired, and speaks for itself
		id := m.awaitInstance(autoscaling.NewFromConfig(m.config(caller{})), group)
		_, err := scaling.RecordLifecycleActionHeartbeat(m.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
			AutoScalingGroupName: &group,
			LifecycleHookName:    sdk.String(node.TerminationHook),
			InstanceId:           &id,
		})
		m.permitted("prolong the hook of "+group, err)
		m.endInGroup(scaling, group, id)
	}
}

// readObjects reads all objects in folders of the machine store, and returns them by key.
func (m machineOf) readObjects(folders ...string) map[string][]byte {
	m.Helper()
	out := map[string][]byte{}
	own := store.NewS3Store(m.s3(m.caller), bucket, "team")

	for _, folder := range folders {
		keys := m.objectsBelow("team/" + m.name() + "/machine/" + folder)
		if len(keys) == 0 {
			m.Errorf("the machine store has no %s", folder)
		}

		for _, key := range keys {
			key = strings.TrimPrefix(key, "team/")
			o, err := own.Get(m.Context(), key)
			if err != nil {
				m.Errorf("%s reads %s: %v", m.role, key, err)
			}

			out[key] = o.Body
		}
	}

	return out
}

// needsWorkers reports whether a control-plane machine calls an action only for a worker.
func needsWorkers(action string) bool {
	return slices.Contains([]string{
		"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat",
		"autoscaling:TerminateInstanceInAutoScalingGroup",
	}, action)
}

// useKeys opens the keys of the machine store, and seals one for a backup.
func (m machineOf) useKeys(sealed map[string][]byte) {
	m.Helper()
	found, err := kms.NewFromConfig(m.config(caller{})).DescribeKey(m.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway-" + bucket)})
	m.check(err)

	sealer := store.NewKMSSealer(kms.NewFromConfig(m.config(m.caller)), *found.KeyMetadata.Arn)
	for key, body := range sealed {
		if !strings.Contains(key, "/machine/secrets/") {
			continue
		}

		if _, err := sealer.Open(m.Context(), body, pki.MachineKeyContext(m.name())); err != nil {
			m.Errorf("%s opens %s: %v", m.role, key, err)
		}
	}

	if _, err := sealer.Seal(m.Context(), []byte("a key"), backup.Context(m.name(), "20261126T120000Z")); err != nil {
		m.Errorf("%s seals the key of a backup: %v", m.role, err)
	}
}

// writeMarkers writes, reads, lists and deletes below the folder of etcd.
func (m machineOf) writeMarkers() {
	m.Helper()
	own := store.NewS3Store(m.s3(m.caller), bucket, "team")
	folder := m.name() + "/machine/etcd/"
	for _, key := range []string{folder + "absent/test", folder + "backups/test/part-00000"} {
		_, err := own.Put(m.Context(), key, []byte("x"))
		m.check(err)
		_, err = own.Get(m.Context(), key)
		m.check(err)
	}

	_, err := own.List(m.Context(), folder)
	m.check(err)
	m.check(own.Delete(m.Context(), folder+"backups/test/part-00000"))
	_, err = m.s3(caller{}).DeleteObject(m.Context(), &s3.DeleteObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/" + folder + "absent/test"),
	})
	m.check(err)

	if !m.cluster.Spec.KubeAPIServer.AuditLogUpload {
		return
	}

	_, err = own.Create(m.Context(), store.AuditLogPrefix(m.name())+"test", []byte("x"))
	m.check(err)
}

// useEC2 finds the machines and volumes of the cluster, and takes and returns the volume and the address of the slot, with
// the functions of the agent.
func (m machineOf) useEC2() {
	m.Helper()
	api := agent.EC2Client{EC2: ec2.NewFromConfig(m.config(m.caller)), Cluster: m.name()}
	_, err := api.ListMachines(m.Context())
	m.check(err)
	_, err = api.ListControlPlane(m.Context())
	m.check(err)
	_, found, err := api.FindMachine(m.Context(), m.instance)
	m.check(err)
	if !found {
		m.Errorf("%s does not find its machine", m.role)
	}

	volumes, err := api.ListVolumes(m.Context())
	m.check(err)
	volumes = slices.DeleteFunc(volumes, func(v agent.Volume) bool { return v.Slot != m.slot })
	if len(volumes) != 1 {
		m.Fatalf("slot %s has %d volumes", m.slot, len(volumes))
	}

	m.createVolume(volumes[0].ID)
	m.check(api.AttachVolume(m.Context(), volumes[0].ID, m.instance, "/dev/xvdf"))
	m.check(api.CheckDetachVolume(m.Context(), volumes[0].ID, m.instance))
	m.check(api.DetachVolume(m.Context(), volumes[0].ID, m.instance))

	if m.cluster.Spec.API.LoadBalancer.Type == manifest.LoadBalancerElasticIP {
		m.check(api.AssociateElasticIP(m.Context(), m.slot, m.instance))
	}
}

// createVolume creates a volume like that of the slot, as after its loss, unless the machine has no right to create any. An
// administrator deletes it.
func (m machineOf) createVolume(like string) {
	m.Helper()
	if !strings.Contains(m.policy(), "ec2:CreateVolume") {
		return
	}

	root := ec2.NewFromConfig(m.config(caller{}))
	made, err := ec2.NewFromConfig(m.config(m.caller)).CreateVolume(m.Context(), m.sameVolume(root, like))
	m.check(err)
	m.check(ec2.NewVolumeAvailableWaiter(root, func(o *ec2.VolumeAvailableWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	}).Wait(m.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{*made.VolumeId}}, time.Minute))
	_, err = root.DeleteVolume(m.Context(), &ec2.DeleteVolumeInput{VolumeId: made.VolumeId})
	m.check(err)
}

// policy returns the text of the policy of the machine's role.
func (m machineOf) policy() string {
	m.Helper()
	found, err := iam.NewFromConfig(m.config(caller{})).GetRolePolicy(m.Context(), &iam.GetRolePolicyInput{
		RoleName: &m.role, PolicyName: sdk.String("machine"),
	})
	m.check(err)

	return m.unescape(*found.PolicyDocument)
}

// pullImage pulls an image of the cluster's private registry, if it has one. An administrator has pushed it.
func (m machineOf) pullImage() {
	m.Helper()
	prefix, isPrivate := strings.CutPrefix(m.cluster.Spec.Assets.ContainerRegistry, registryHost+"/")
	if !isPrivate {
		return
	}

	repository := prefix + "/registry.k8s.io/" + m.instance
	_, err := ecr.NewFromConfig(m.config(caller{})).CreateRepository(m.Context(), &ecr.CreateRepositoryInput{RepositoryName: &repository})
	m.check(err)
	m.check(m.pushTo(repository, m.registryOptions(caller{})))
	m.check(m.pullAllFrom(repository, m.registryOptions(m.caller)))
}

// checkAllTried checks that the machine has tried all that its role allows: a new right of machines is tried here, too.
func (m machineOf) checkAllTried() {
	m.Helper()
	tried := map[string]bool{}
	m.mu.Lock()
	for _, a := range m.asked {
		if strings.HasSuffix(a.Principal.RoleARN, "/"+m.role) {
			tried[a.Action] = true
		}
	}
	m.mu.Unlock()

	hasWorkers := len(m.workerGroups()) > 0
	for _, p := range m.parseText(m.policy()) {
		for _, st := range p.Statements {
			for _, action := range st.Action {
				if !tried[action] && (hasWorkers || !needsWorkers(action)) {
					m.Errorf("%s may call %s, which the test does not try", m.role, action)
				}
			}
		}
	}
}

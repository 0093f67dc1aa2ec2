// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// step is one call of an escalation.
type step struct {
	action, resource string
	context          map[string][]string
}

// escalation is a known way from some permissions to more. It works if every step is allowed.
type escalation struct {
	name  string
	steps []step
}

const (
	iamOf        = "arn:aws:iam::" + regiontest.AccountID + ":"
	ownRole      = iamOf + "role/slipway/us-east-1/demo/own"
	foreign      = iamOf + "role/admin"
	boundary     = iamOf + "policy/slipway/slipway-machines-slipway-test"
	foreignKey   = "arn:aws:kms:us-east-1:" + regiontest.AccountID + ":key/payments"
	ec2Of        = "arn:aws:ec2:us-east-1:" + regiontest.AccountID + ":"
	lambdaOf     = "arn:aws:lambda:us-east-1:" + regiontest.AccountID + ":function:"
	repositoryOf = "arn:aws:ecr:us-east-1:" + regiontest.AccountID + ":repository/"
	eventsOf     = "arn:aws:events:us-east-1:" + regiontest.AccountID + ":rule/"
	balancerOf   = "arn:aws:elasticloadbalancing:us-east-1:" + regiontest.AccountID + ":"
	stackOf      = "arn:aws:cloudformation:us-east-1:" + regiontest.AccountID + ":stack/"
	ownStack     = stackOf + "slipway-demo/0a1b"
	scalingOf    = "arn:aws:autoscaling:us-east-1:" + regiontest.AccountID + ":autoScalingGroup:0a1b:autoScalingGroupName/"
)

func passTo(role, service string) step {
	return step{"iam:PassRole", role, map[string][]string{"iam:PassedToService": {service + ".amazonaws.com"}}}
}

func on(action, resource string) step { return step{action: action, resource: resource} }

// decryptVia lets a service decrypt with a foreign key for the caller.
func decryptVia(service string) step {
	return step{"kms:Decrypt", foreignKey, map[string][]string{"kms:ViaService": {service + ".us-east-1.amazonaws.com"}}}
}

// changeRecord changes a record with a name in a zone.
func changeRecord(name string) step {
	return step{"route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z0123456789ABCDEFGHIJ", map[string][]string{
		"route53:ChangeResourceRecordSetsNormalizedRecordNames": {name}, "route53:ChangeResourceRecordSetsRecordTypes": {"A"},
		"route53:ChangeResourceRecordSetsActions": {"UPSERT"},
	}}
}

// joinTargets creates or changes a group of the cluster, so that its machines get what a load balancer of others receives.
func joinTargets(operation, key, value string) step {
	return step{"autoscaling:" + operation, scalingOf + "workers.demo", map[string][]string{
		"aws:ResourceTag/slipway.dev/cluster": {"demo"}, "aws:RequestTag/slipway.dev/cluster": {"demo"}, key: {value},
	}}
}

// bounded is a step with the permissions boundary arn as the condition key.
func bounded(action, resource, arn string) step {
	return step{action, resource, map[string][]string{"iam:PermissionsBoundary": {arn}}}
}

// escalations are the ways that are known for AWS: those of Rhino Security Labs' "AWS IAM Privilege Escalation" and
// of Bishop Fox's "IAM Vulnerable", and those that the resources of a cluster add.
func escalations() []escalation {
	tagged := func(key, value string) map[string][]string {
		return map[string][]string{"aws:RequestTag/" + key: {value}, "aws:TagKeys": {key}}
	}
	other := map[string][]string{"aws:ResourceTag/slipway.dev/cluster": {"demo-2"}}
	given := tagged("slipway.dev/cluster", "demo-2") // of a resource of the cluster
	given["aws:ResourceTag/slipway.dev/cluster"] = []string{"demo"}

	return []escalation{
		{"replace an image that machines pull", []step{on("ecr:PutImage", repositoryOf+"mirror/registry.k8s.io/pause")}},
		{"delete an image", []step{on("ecr:BatchDeleteImage", repositoryOf+"payments")}},
		{"add a layer to an image", []step{on("ecr:UploadLayerPart", repositoryOf+"payments")}},
		{"read an image of another account", []step{on("ecr:BatchGetImage", "arn:aws:ecr:us-east-1:111122223333:repository/payments")}},
		{"let others replace an image", []step{on("ecr:SetRepositoryPolicy", repositoryOf+"mirror/registry.k8s.io/pause")}},
		{"new version of a policy", []step{on("iam:CreatePolicyVersion", iamOf+"policy/any")}},
		{"new version of the boundary", []step{on("iam:CreatePolicyVersion", boundary)}},
		{"another default version", []step{on("iam:SetDefaultPolicyVersion", boundary)}},
		{"delete the boundary's policy", []step{on("iam:DeletePolicy", boundary)}},
		{"access key of a user", []step{on("iam:CreateAccessKey", iamOf+"user/admin")}},
		{"password of a user", []step{on("iam:CreateLoginProfile", iamOf+"user/admin")}},
		{"new password of a user", []step{on("iam:UpdateLoginProfile", iamOf+"user/admin")}},
		{"attach a policy to a user", []step{on("iam:AttachUserPolicy", iamOf+"user/operator")}},
		{"attach a policy to a group", []step{on("iam:AttachGroupPolicy", iamOf+"group/operators")}},
		{"attach a policy to a role", []step{on("iam:AttachRolePolicy", ownRole)}},
		{"attach a policy to a role with a boundary", []step{bounded("iam:AttachRolePolicy", foreign, boundary)}},
		{"attach another policy to a role of the cluster with the boundary", []step{attach("arn:aws:iam::aws:policy/AdministratorAccess", boundary)}},
		{"attach a policy of the manifest to a role without a boundary", []step{attach(groupPolicy, "")}},
		{"inline policy of a user", []step{on("iam:PutUserPolicy", iamOf+"user/operator")}},
		{"inline policy of a group", []step{on("iam:PutGroupPolicy", iamOf+"group/operators")}},
		{"inline policy of a role without a boundary", []step{on("iam:PutRolePolicy", ownRole)}},
		{"inline policy of a role with another boundary", []step{bounded("iam:PutRolePolicy", ownRole, iamOf+"policy/all")}},
		{"inline policy of a foreign role", []step{bounded("iam:PutRolePolicy", foreign, boundary)}},
		{"join a group", []step{on("iam:AddUserToGroup", iamOf+"group/admins")}},
		{"let oneself assume a foreign role", []step{on("iam:UpdateAssumeRolePolicy", foreign)}},
		{"let oneself assume a machine's role", []step{on("iam:UpdateAssumeRolePolicy", ownRole)}},
		{"role without a boundary", []step{on("iam:CreateRole", ownRole)}},
		{"role with another boundary", []step{bounded("iam:CreateRole", ownRole, "arn:aws:iam::aws:policy/AdministratorAccess")}},
		{"bounded role outside of the cluster's path", []step{bounded("iam:CreateRole", foreign, boundary)}},
		{"remove a boundary", []step{bounded("iam:DeleteRolePermissionsBoundary", ownRole, boundary)}},
		{"weaker boundary", []step{bounded("iam:PutRolePermissionsBoundary", ownRole, "arn:aws:iam::aws:policy/AdministratorAccess")}},
		{"remove the boundary of a user", []step{on("iam:DeleteUserPermissionsBoundary", iamOf+"user/operator")}},
		{"assume a foreign role", []step{on("sts:AssumeRole", foreign)}},
		{"instance with a foreign role", []step{passTo(foreign, "ec2")}}, // RunInstances has conditions that no step has
		{"foreign role in an instance profile", []step{on("iam:AddRoleToInstanceProfile", iamOf+"instance-profile/slipway/us-east-1/demo/p"), passTo(foreign, "ec2")}},
		{"function with a role", []step{on("lambda:CreateFunction", "*"), passTo(ownRole, "lambda")}},
		{"pass a cluster's role to Lambda", []step{passTo(ownRole, "lambda")}},
		{"pass a cluster's role to CloudFormation", []step{passTo(ownRole, "cloudformation")}},
		{"stack with a role", []step{on("cloudformation:CreateStack", "*"), passTo(foreign, "cloudformation")}},
		{"stack of the cluster with a role", []step{{"cloudformation:CreateStack", ownStack, map[string][]string{"cloudformation:RoleArn": {foreign}}}}},
		{"update of the cluster's stack with a role", []step{{"cloudformation:CreateChangeSet", ownStack, map[string][]string{"cloudformation:RoleArn": {foreign}}}}},
		{"import of a foreign key into the cluster's stack", []step{{"cloudformation:CreateChangeSet", ownStack, map[string][]string{"cloudformation:ImportResourceTypes": {"AWS::KMS::Key"}}}}},
		{"stack of others", []step{on("cloudformation:UpdateStack", stackOf+"payments/0a1b")}},
		{"stack of another cluster", []step{on("cloudformation:CreateChangeSet", stackOf+"slipway-demo-2/0a1b")}},
		{"protection of a stack of others", []step{on("cloudformation:SetStackPolicy", stackOf+"payments/0a1b")}},
		{"key of another cluster by a stack", []step{{"kms:TagResource", foreignKey, map[string][]string{
			"aws:CalledVia": {"cloudformation.amazonaws.com"}, "aws:RequestTag/slipway.dev/cluster": {"demo-2"},
		}}}},
		{"Glue endpoint with a role", []step{on("glue:CreateDevEndpoint", "*"), passTo(foreign, "glue")}},
		{"data pipeline with a role", []step{on("datapipeline:CreatePipeline", "*"), passTo(foreign, "datapipeline")}},
		{"code of a function", []step{on("lambda:UpdateFunctionCode", "*")}},
		{"command on an instance", []step{on("ssm:SendCommand", ec2Of+"instance/i-1")}},
		{"session on an instance", []step{on("ssm:StartSession", ec2Of+"instance/i-1")}},
		{"user data of a foreign instance", []step{on("ec2:ModifyInstanceAttribute", ec2Of+"instance/i-1")}},
		{"replace an instance's profile", []step{on("ec2:ReplaceIamInstanceProfileAssociation", ec2Of+"instance/i-1")}},
		{"associate a profile", []step{on("ec2:AssociateIamInstanceProfile", ec2Of+"instance/i-1")}},
		{"volume of another cluster", []step{{"ec2:AttachVolume", ec2Of + "volume/vol-1", other}}},
		{"new volume of another cluster", []step{{"ec2:CreateVolume", ec2Of + "volume/*", tagged("slipway.dev/cluster", "demo-2")}}},
		{"volume of a foreign snapshot", []step{
			on("ec2:CreateVolume", ec2Of+"snapshot/snap-1"),
			{"ec2:CreateVolume", ec2Of + "volume/*", map[string][]string{
				"aws:RequestTag/slipway.dev/cluster": {"demo"}, "ec2:ParentSnapshot": {ec2Of + "snapshot/snap-1"},
			}},
		}},
		{"take a volume that exists by its tags", []step{{"ec2:CreateTags", ec2Of + "volume/vol-1", tagged("slipway.dev/cluster", "demo")}}},
		{"volume of others with their key", []step{{"ec2:AttachVolume", ec2Of + "volume/vol-1", other}, decryptVia("ec2")}},
		{"object of others with their key", []step{on("s3:GetObject", "arn:aws:s3:::payments/ledger"), decryptVia("s3")}},
		{"launch template of another cluster", []step{{"ec2:CreateLaunchTemplateVersion", ec2Of + "launch-template/lt-1", other}}},
		{"ports of another cluster", []step{{"ec2:AuthorizeSecurityGroupIngress", ec2Of + "security-group/sg-1", other}}},
		{"load balancer of another cluster", []step{{"elasticloadbalancing:DeleteLoadBalancer", "*", other}}},
		{"take a load balancer of others by its tags", []step{{"elasticloadbalancing:AddTags", balancerOf + "loadbalancer/net/payments/1", tagged("slipway.dev/cluster", "demo")}}},
		{"take a target group of others by its tags", []step{{"elasticloadbalancing:AddTags", balancerOf + "targetgroup/payments/1", tagged("slipway.dev/cluster", "demo")}}},
		{"give a load balancer to another cluster", []step{{"elasticloadbalancing:AddTags", balancerOf + "loadbalancer/net/demo-api/1", given}}},
		{"give a volume to another cluster", []step{{"ec2:CreateTags", ec2Of + "volume/vol-1", given}}},
		{"give a key to another cluster", []step{{"kms:TagResource", foreignKey, given}}},
		{"give a group to another cluster", []step{{"autoscaling:CreateOrUpdateTags", scalingOf + "workers.demo", given}}},
		{"group whose machines have the tag of another cluster", []step{{"autoscaling:CreateAutoScalingGroup", scalingOf + "x.demo", tagged("slipway.dev/cluster", "demo-2")}}},
		{"group of another cluster whose name ends in this one's", []step{{"autoscaling:UpdateAutoScalingGroup", scalingOf + "workers.x.demo", map[string][]string{"aws:ResourceTag/slipway.dev/cluster": {"x.demo"}}}}},
		{"group in a target group of others", []step{joinTargets("AttachLoadBalancerTargetGroups", "autoscaling:TargetGroupARNs", balancerOf+"targetgroup/payments/1")}},
		{"new group in a target group of others", []step{joinTargets("CreateAutoScalingGroup", "autoscaling:TargetGroupARNs", balancerOf+"targetgroup/payments/1")}},
		{"new group in a target group of others as a source of traffic", []step{joinTargets("CreateAutoScalingGroup", "autoscaling:TrafficSourceIdentifiers", balancerOf+"targetgroup/payments/1")}},
		{"new group in a classic load balancer of others", []step{joinTargets("CreateAutoScalingGroup", "autoscaling:LoadBalancerNames", "payments")}},
		{"group with a launch configuration of others", []step{joinTargets("CreateAutoScalingGroup", "autoscaling:LaunchConfigurationName", "payments")}},
		{"launch configuration of others for a group of the cluster", []step{joinTargets("UpdateAutoScalingGroup", "autoscaling:LaunchConfigurationName", "payments")}},
		{"machine with a network interface of others", []step{{"ec2:RunInstances", ec2Of + "network-interface/eni-1", map[string][]string{
			"ec2:LaunchTemplate": {ec2Of + "launch-template/lt-1"}, "aws:ResourceTag/team": {"payments"},
		}}}},
		{"console of a machine of others", []step{on("ec2:GetConsoleOutput", ec2Of+"instance/i-1")}},
		{"tag what has no tag", []step{{"ec2:CreateTags", ec2Of + "instance/i-1", tagged("slipway.dev/cluster", "demo")}}},
		{"role of another cluster by its tag", []step{{"iam:TagRole", ownRole, tagged("slipway.dev/cluster", "demo-2")}}},
		{"tag a foreign role", []step{on("iam:TagRole", foreign)}},
		{"tag a foreign key", []step{{"kms:TagResource", foreignKey, tagged("slipway.dev/cluster", "demo")}}},
		{"mark a foreign key for deletion", []step{{"kms:TagResource", foreignKey, tagged("slipway.dev/former-cluster", "demo")}}},
		{"policy of a foreign key", []step{on("kms:PutKeyPolicy", foreignKey)}},
		{"delete a foreign key", []step{on("kms:ScheduleKeyDeletion", foreignKey)}},
		{"grant on a foreign key", []step{on("kms:CreateGrant", foreignKey)}},
		{"open the keys of another cluster", []step{{"kms:Decrypt", foreignKey, map[string][]string{
			"kms:ResourceAliases": {"alias/slipway-slipway-test"}, "kms:EncryptionContext:slipway.dev/cluster": {"demo-2"},
		}}}},
		{"read the keys of another cluster", []step{on("s3:GetObject", "arn:aws:s3:::slipway-test/team/demo-2/pki/private/kubernetes-ca")}},
		{"policy of the bucket", []step{on("s3:PutBucketPolicy", "arn:aws:s3:::slipway-test")}},
		{"federate", []step{on("sts:GetFederationToken", "*")}},
		{"provider of an issuer of one's own", []step{on("iam:CreateOpenIDConnectProvider", iamOf+"oidc-provider/evil.example")}},
		{"provider of another cluster", []step{on("iam:DeleteOpenIDConnectProvider", iamOf+"oidc-provider/"+oidcHost+"/prod/demo-2")}},
		{"audience of another cluster", []step{on("iam:AddClientIDToOpenIDConnectProvider", iamOf+"oidc-provider/"+oidcHost+"/prod/demo-2")}},
		{"issuer's keys of another cluster", []step{on("s3:PutObject", "arn:aws:s3:::slipway-test-oidc/prod/demo-2/openid/v1/jwks")}},
		{"what else everybody can read", []step{on("s3:PutObject", "arn:aws:s3:::slipway-test-oidc/prod/demo/index.html")}},
		{"policy of the discovery store", []step{on("s3:PutBucketPolicy", "arn:aws:s3:::slipway-test-oidc")}},
		{"public access block of the discovery store", []step{on("s3:PutBucketPublicAccessBlock", "arn:aws:s3:::slipway-test-oidc")}},
		{"code of another function", []step{on("lambda:UpdateFunctionCode", lambdaOf+"payments")}},
		{"role of another function", []step{on("lambda:UpdateFunctionConfiguration", lambdaOf+"slipway-dns-demo-2"), passTo(iamOf+"role/slipway/us-east-1/demo/demo.dns.us-east-1", "lambda")}},
		{"machine's role for the function", []step{passTo(iamOf+"role/slipway/us-east-1/demo/demo.control-plane.us-east-1", "lambda")}},
		{"invoke another function", []step{on("lambda:InvokeFunction", lambdaOf+"payments")}},
		{"open the function to an account", []step{{"lambda:AddPermission", lambdaOf + "slipway-dns-demo", map[string][]string{"lambda:Principal": {"111122223333"}}}}},
		{"trigger another function", []step{{"events:PutTargets", eventsOf + "slipway-dns-demo", map[string][]string{"events:TargetArn": {lambdaOf + "payments"}}}}},
		{"rule of others", []step{on("events:PutRule", eventsOf+"payments")}},
		{"log of others", []step{on("logs:DeleteLogGroup", "arn:aws:logs:us-east-1:"+regiontest.AccountID+":log-group:/aws/lambda/payments:log-stream:")}},
		{"write to a log of others", []step{on("logs:PutLogEvents", "arn:aws:logs:us-east-1:"+regiontest.AccountID+":log-group:/aws/lambda/payments:log-stream:x")}},
		{"records of another cluster's etcd", []step{changeRecord("etcd-a.demo-2.internal")}},
		{"records of the etcd of a cluster whose name ends in this one's", []step{changeRecord("etcd-a.x.demo.internal")}},
		{"records without a name", []step{on("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z0123456789ABCDEFGHIJ")}},
		{"records of other names", []step{changeRecord("www.example.com")}},
		{"subnet in a VPC of others", []step{on("ec2:CreateSubnet", ec2Of+"vpc/vpc-0123456789abcdef1")}},
		{"machine in a subnet of others", []step{on("ec2:RunInstances", ec2Of+"subnet/subnet-0123456789abcdef1")}},
		{"role of an existing profile for a function", []step{passTo(iamOf+"role/k8s-worker", "lambda")}},
		{"service-linked role", []step{on("iam:CreateServiceLinkedRole", "*")}},
	}
}

// allowed reports whether all steps are allowed.
func (e escalation) allowed(policies, limit []authz.Policy) bool {
	for _, s := range e.steps {
		r := authz.Request{Action: s.action, Resource: s.resource, Context: map[string][]string{
			"aws:PrincipalTag/slipway.dev/cluster": {"demo"}, "aws:PrincipalArn": {ownRole},
		}}
		maps.Copy(r.Context, s.context)
		if !authz.EvaluateWithin(policies, limit, r).Allowed {
			return false
		}
	}

	return true
}

// TestNoEscalation tries all escalations as the operator, as the reader, and as each machine role. Of these, the
// operator's "inline policy of a role without a boundary", "let oneself assume a machine's role", "pass a cluster's role
// to Lambda", "tag a foreign key", "role without a boundary" and others were seen to succeed before there was a boundary.
func TestNoEscalation(t *testing.T) {
	l := newPodLab(t).lab
	who := map[string][2][]authz.Policy{
		"operator":                    {l.parse(l.policies("demo", "--allow-existing")), nil},
		"reader":                      {l.parse(l.policies("demo", "--read-only", "--allow-existing")), nil},
		"deletion":                    {l.parse(append(l.policies("demo", "--allow-existing"), l.policies("demo", "--deletion")...)), nil},
		"operator of a stack":         {l.parse(append(l.policies("demo", "--allow-existing"), l.policies("demo", "--stack")...)), nil},
		"state init":                  {l.parse(l.policies("demo", "--state-init")), nil},
		"operator with a function":    {l.parse(functionPolicies()), nil},
		"operator in a VPC of others": {l.parse(existingPolicies()), nil},
		// What an operator gives a role of the cluster, and the operator's own role, is limited by the boundary.
		"bounded": {l.parseText(anything), l.boundary()},
	}

	controller, err := os.ReadFile(controllerFile + "-policy.json")
	l.check(err)
	addition, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": controllerBoundary(l)})
	l.check(err)
	// The administrator has extended the boundary for load balancers of Services.
	who["bounded, with load balancers"] = [2][]authz.Policy{
		l.parseText(anything),
		append(l.boundary(), l.parseText(string(addition))...),
	}
	// The same for application load balancers of Ingresses.
	who["bounded, with load balancers of Ingresses"] = [2][]authz.Policy{
		l.parseText(anything),
		append(l.boundary(), l.parseText(ingressControllerDocument(t, "boundary", "vpc-0123456789abcdef0"))...),
	}
	who["bounded, with volumes of claims"] = [2][]authz.Policy{l.parseText(anything), append(l.boundary(), l.parseText(ebsPolicy(t))...)}
	who[controllerName] = [2][]authz.Policy{l.parseText(strings.ReplaceAll(string(controller), "CLUSTER", "demo")), nil}
	who[externalDNS] = [2][]authz.Policy{l.parseText(externalDNSPolicy(l, "Z1")), nil}
	who[certManager] = [2][]authz.Policy{l.parseText(certManagerPolicy(l, "Z1")), nil}
	who[vpcCNIAccount] = [2][]authz.Policy{l.parseText(vpcCNIPolicy(l)), nil}
	who["EBS CSI driver"] = [2][]authz.Policy{l.parseText(ebsPolicy(t)), nil}
	who[ingressController] = [2][]authz.Policy{l.parseText(ingressControllerPolicy(t, "vpc-0123456789abcdef0")), nil}
	who[groupScaler] = [2][]authz.Policy{l.parseText(groupScalerPolicy(t)), nil}
	who[karpenterName] = [2][]authz.Policy{karpenterPolicies(l)[0], nil}
	// What an operator gives Karpenter's role is limited by that role's boundary.
	who["bounded, Karpenter"] = [2][]authz.Policy{l.parseText(anything), karpenterPolicies(l)[1]}

	roles := 0

	for name, p := range l.machineRoles() {
		who[name] = p
		roles++
	}

	if roles < 2 {
		t.Fatalf("the cluster has %d roles", roles)
	}

	for name, p := range who {
		for _, e := range escalations() {
			isMeant := name == "state init" && e.name == "policy of the bucket" // it creates that policy
			if e.allowed(p[0], p[1]) && !isMeant {
				t.Errorf("%s can: %s", name, e.name)
			}
		}
	}

	t.Logf("COUNT escalations tried: %d ways by %d principals", len(escalations()), len(who))
}

// TestDocumentedEscalations: docs/security.md says how many ways are tried. No attack: it counts them.
func TestDocumentedEscalations(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("any of %d known escalations", len(escalations())); strings.Count(string(page), want) != 3 {
		t.Errorf("docs/security.md does not say three times: %s", want)
	}
}

// functionPolicies returns the policies of an operator of a cluster with a function for DNS records.
func functionPolicies() []iampolicy.Policy {
	return iampolicy.BuildPolicies(iampolicy.Input{
		Partition:    "aws",
		Region:       "us-east-1",
		Account:      regiontest.AccountID,
		Cluster:      "demo",
		RolePath:     rolePath,
		KeyAlias:     "alias/slipway/demo",
		Stores:       []iampolicy.StoreLocation{{Bucket: bucket, Prefix: "team"}},
		Boundary:     boundary,
		CreatesZones: true,
		Function:     "slipway-dns-demo",
		HasTopic:     true, FunctionRole: "demo.dns.us-east-1",
	})
}

// groupPolicy is a managed policy that a manifest names.
const groupPolicy = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"

// attach attaches a managed policy to a role of the cluster; an empty boundary: the role has none.
func attach(policy, limit string) step {
	out := step{"iam:AttachRolePolicy", "arn:aws:iam::" + regiontest.AccountID + ":role" + rolePath + "demo.worker.us-east-1", map[string][]string{
		"iam:PolicyARN": {policy},
	}}
	if limit != "" {
		out.context["iam:PermissionsBoundary"] = []string{limit}
	}

	return out
}

// existingPolicies returns the policies of an operator of a cluster that uses a VPC, subnets, security groups, instance
// profiles and managed policies of others.
func existingPolicies() []iampolicy.Policy {
	const account = "arn:aws:iam::" + regiontest.AccountID

	return iampolicy.BuildPolicies(iampolicy.Input{
		Partition:    "aws",
		Region:       "us-east-1",
		Account:      regiontest.AccountID,
		Cluster:      "demo",
		RolePath:     rolePath,
		KeyAlias:     "alias/slipway/demo",
		Stores:       []iampolicy.StoreLocation{{Bucket: bucket, Prefix: "team"}},
		Boundary:     boundary,
		HasEndpoints: true,
		PeerVPCs:     []string{"vpc-0123456789abcdef2"},
		Existing: iampolicy.ExistingResources{
			VPC:             "vpc-0123456789abcdef0",
			Subnets:         []string{"subnet-0123456789abcdef0"},
			PublicSubnets:   []string{"subnet-0123456789abcdef0"},
			SecurityGroups:  []string{"sg-0123456789abcdef0"},
			Addresses:       []string{"eipalloc-0123456789abcdef0"},
			Profiles:        []string{account + ":instance-profile/k8s-worker"},
			ProfileRoles:    []string{account + ":role/k8s-worker"},
			ManagedPolicies: []string{groupPolicy},
		},
	})
}

// TestBoundaryCoversMachines: the boundary takes nothing away from the roles of machines. No attack: what the boundary must not break.
func TestBoundaryCoversMachines(t *testing.T) {
	l := newLab(t)
	l.createCluster()

	for name, p := range l.machineRoles() {
		for _, st := range p[0] {
			for _, s := range st.Statements {
				l.checkCovered(name, s, p[1])
			}
		}
	}
}

// checkCovered checks that the boundary allows what a statement of a role allows, with values of its conditions.
func (l *lab) checkCovered(role string, s authz.Statement, limit []authz.Policy) {
	l.Helper()
	keys := map[string][]string{
		"kms:ResourceAliases": {"alias/slipway-slipway-test"}, "aws:ResourceTag/slipway.dev/cluster": {"demo"},
		"aws:PrincipalTag/slipway.dev/cluster": {"demo"}, "aws:PrincipalArn": {ownRole},
	}
	for _, c := range s.Conditions {
		if c.Operator != "Null" || c.Values[0] == "false" { // a key that must be missing has no value
			keys[c.Key] = c.Values
		}
	}

	for _, action := range s.Action {
		for _, resource := range s.Resource {
			r := authz.Request{Action: action, Resource: strings.ReplaceAll(resource, "*", "x"), Context: keys}
			switch {
			case resource == "*" && strings.HasPrefix(action, "autoscaling:") && !strings.Contains(action, ":Describe"):
				r.Resource = "arn:aws:autoscaling:us-east-1:" + regiontest.AccountID + ":autoScalingGroup:x:autoScalingGroupName/x"
			case resource == "*":
				r.Resource = "*"
			}

			if d := authz.EvaluateWithin([]authz.Policy{{Version: "2012-10-17", Statements: []authz.Statement{s}}}, limit, r); !d.Allowed {
				l.Errorf("the boundary does not allow %s on %s, which role %s has: %s", action, resource, role, d.Reason)
			}
		}
	}
}

// machineRoles returns the policies and the boundary of each role of the cluster.
func (l *lab) machineRoles() map[string][2][]authz.Policy {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	roles, err := api.ListRoles(l.Context(), &iam.ListRolesInput{PathPrefix: sdk.String(rolePath)})
	l.check(err)

	out := map[string][2][]authz.Policy{}

	for _, r := range roles.Roles {
		got, err := api.GetRole(l.Context(), &iam.GetRoleInput{RoleName: r.RoleName})
		l.check(err)

		if b := got.Role.PermissionsBoundary; b == nil || *b.PermissionsBoundaryArn != boundary {
			l.Errorf("role %s has no permissions boundary", *r.RoleName)
		}

		names, err := api.ListRolePolicies(l.Context(), &iam.ListRolePoliciesInput{RoleName: r.RoleName})
		l.check(err)

		var own []authz.Policy

		for _, name := range names.PolicyNames {
			p, err := api.GetRolePolicy(l.Context(), &iam.GetRolePolicyInput{RoleName: r.RoleName, PolicyName: &name})
			l.check(err)

			text, err := url.QueryUnescape(*p.PolicyDocument)
			l.check(err)

			own = append(own, l.parseText(text)...)
		}

		out[*r.RoleName] = [2][]authz.Policy{own, l.boundary()}
	}

	return out
}

// boundary returns the permissions boundary that 'state init' created.
func (l *lab) boundary() []authz.Policy {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	v, err := api.GetPolicyVersion(l.Context(), &iam.GetPolicyVersionInput{PolicyArn: sdk.String(boundary), VersionId: sdk.String("v1")})
	l.check(err)

	text, err := url.QueryUnescape(*v.PolicyVersion.Document)
	l.check(err)

	return l.parseText(text)
}

// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// FunctionCode is the published code of the function that keeps the DNS records of etcd's members.
type FunctionCode struct {
	// Key of the zip file in the bucket of the machine store.
	Key string
	// SHA256 of the zip file, in hex.
	SHA256 string
	// Arch is the architecture of its program: amd64 or arm64.
	Arch string
}

// The settings of the function. It makes a handful of calls and keeps a few hundred records in
// memory.
const (
	functionName    = "dns" // in the graph
	functionMemory  = 128   // MB
	functionTimeout = 60    // seconds
	// functionResync makes up for a lost event.
	functionResync = "rate(5 minutes)"
	// functionLogDays is how long the log of the function is kept.
	functionLogDays = 14
	// functionTarget is the id of the target of the rule.
	functionTarget = "function"
)

// UsesEtcdDNS reports whether the members of a cluster's etcd find each other by DNS records, which
// a function keeps.
func UsesEtcdDNS(c v1alpha1.ClusterSpec) bool { return c.Etcd.Discovery == v1alpha1.EtcdDiscoveryDNS }

// addEtcdDNS adds the private zone for the records of etcd's members and the function that keeps
// them: its role, its log group, the rule and the topic that trigger it, and its invocation, which
// lets it delete its records before the zone is deleted.
func addEtcdDNS(b *builder) {
	if !UsesEtcdDNS(b.Cluster.Spec) {
		return
	}

	if b.FunctionCode.Key == "" {
		b.findings.Errorf("cluster/"+b.clusterName(), "", "", "the code of the function for DNS records was not published")
		return
	}

	domain := v1alpha1.EtcdZone(b.clusterName())
	if b.Cluster.Spec.DNSZone == domain { // the manifest's validation has said so: two zones of one name cannot be told apart
		b.findings.Errorf(
			"cluster/"+b.clusterName()+": spec.dnsZone",
			domain,
			"use another zone, or set spec.etcd.discovery to Tags",
			"is the zone in which etcd's members find each other, and a VPC can have only one of a name",
		)
	}

	zone := graph.Add(b.graph, awskind.EtcdZoneName, awskind.HostedZone{
		Name:   domain,
		Config: awskind.HostedZoneConfig{Comment: awskind.ZoneComment(b.clusterName())},
		VPCs:   []awskind.ZoneVPC{{VPC: b.vpc, Region: b.Region}},
		Tags:   b.resourceTags(awskind.HostedZone{}.Kind(), awskind.EtcdZoneName, nil),
	})

	name := FunctionName(b.clusterName())
	logs := graph.Add(b.graph, functionName, awskind.LogGroup{
		Name:      awskind.FunctionLogGroup(name),
		Retention: functionLogDays,
		Tags:      b.resourceTags(awskind.LogGroup{}.Kind(), functionName, nil),
	})

	role := addFunctionRole(b)
	policy := graph.Add(b.graph, functionName, awskind.IAMRolePolicy{
		Role:     role,
		Name:     "records",
		Document: functionPolicy(b, zone),
	})

	function := addFunction(b, role, zone, []graph.Reference{policy, logs})
	records := graph.Add(b.graph, functionName, awskind.LambdaInvocation{
		Function:       function.Attr("Arn"),
		Input:          functionInput(b.FunctionCode),
		LifecycleScope: "CRUD",
	}, policy, logs, zone)

	b.etcdEvents = []graph.Reference{addFunctionRule(b, function, records)}
	if UsesEtcdTopic(b.Cluster.Spec) {
		addFunctionTopic(b, function, records)
	}
}

// addFunctionRole adds the role of the function. It has the permissions boundary of the machines'
// roles.
func addFunctionRole(b *builder) graph.Ref[awskind.IAMRole] {
	return graph.Add(b.graph, functionName, awskind.IAMRole{
		Name:        FunctionRoleName(b.clusterName(), b.Region),
		Path:        RolePath(b.clusterName(), b.Region),
		Description: "DNS records of the etcd members of the Kubernetes cluster " + b.clusterName(),
		TrustPolicy: policyDocument(policyStatement{
			ID:        "Function",
			Principal: policyPrincipal{"Service": awskind.PrincipalLambda},
			Actions:   []string{"sts:AssumeRole"},
		}),
		Tags:                b.resourceTags(awskind.IAMRole{}.Kind(), functionName, nil),
		PermissionsBoundary: b.MachineStore.Boundary,
	})
}

// functionPolicy allows the function to find the machines of the control plane, to change the
// records of etcd's members in their zone, and to write its log.
func functionPolicy(b *builder, zone graph.Ref[awskind.HostedZone]) graph.JSON {
	domain := v1alpha1.EtcdZone(b.clusterName())
	zoneARN := "arn:" + b.Partition + ":route53:::hostedzone/" + graph.Symbol{Addr: zone.Addr()}.InJSON()
	group := awskind.FunctionLogGroup(FunctionName(b.clusterName()))

	return policyDocument(
		policyStatement{
			ID:        "Find",
			Actions:   []string{"ec2:DescribeInstances", "ec2:DescribeVolumes"},
			Resources: []string{"*"},
		},
		policyStatement{
			ID:        "Read",
			Actions:   []string{"route53:ListResourceRecordSets"},
			Resources: []string{zoneARN},
		},
		policyStatement{
			ID:        "Records",
			Actions:   []string{"route53:ChangeResourceRecordSets"},
			Resources: []string{zoneARN},
			Condition: policyCondition{
				"ForAllValues:StringLike": {
					"route53:ChangeResourceRecordSetsNormalizedRecordNames": []string{
						"etcd-?." + domain, "_etcd-server-ssl._tcp." + domain, "_etcd-client-ssl._tcp." + domain,
					},
				},
				"ForAllValues:StringEquals": {
					"route53:ChangeResourceRecordSetsRecordTypes": []string{"A", "SRV"},
					"route53:ChangeResourceRecordSetsActions":     []string{"DELETE", "UPSERT"},
				},
			},
		},
		policyStatement{
			ID:      "Log",
			Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents"},
			Resources: []string{
				"arn:" + b.Partition + ":logs:" + b.Region + ":" + b.Account + ":log-group:" + group + ":*",
			},
		},
	)
}

// addFunction adds the function. after is what it needs without referring to it.
func addFunction(
	b *builder,
	role graph.Ref[awskind.IAMRole],
	zone graph.Ref[awskind.HostedZone],
	after []graph.Reference,
) graph.Ref[awskind.LambdaFunction] {
	sum, err := hex.DecodeString(b.FunctionCode.SHA256)
	if err != nil {
		b.findings.Errorf("cluster/"+b.clusterName(), b.FunctionCode.SHA256, "", "the hash of the function's code is not valid")
	}

	arch := "x86_64"
	if b.FunctionCode.Arch == "arm64" {
		arch = "arm64"
	}

	return graph.Add(b.graph, functionName, awskind.LambdaFunction{
		Name:          FunctionName(b.clusterName()),
		Description:   "DNS records of the etcd members of the Kubernetes cluster " + b.clusterName(),
		Role:          role.Attr("Arn"),
		Runtime:       "provided.al2023",
		Handler:       "bootstrap",
		Architectures: []string{arch},
		MemorySize:    functionMemory,
		Timeout:       functionTimeout,
		Code:          awskind.FunctionCode{Bucket: b.MachineStore.Bucket, Key: b.FunctionCode.Key},
		CodeSHA256:    base64.StdEncoding.EncodeToString(sum),
		Environment: awskind.FunctionEnvironment{Variables: awskind.FunctionVariables{
			Cluster:   b.clusterName(),
			ClusterID: b.ClusterID,
			Zone:      zone,
		}},
		Tags: b.resourceTags(awskind.LambdaFunction{}.Kind(), functionName, nil),
	}, after...)
}

// functionInput returns the input of the invocation of the function, which runs again when the code
// changes.
func functionInput(code FunctionCode) graph.JSON {
	text, err := json.Marshal(map[string]string{"code": code.SHA256})
	if err != nil {
		panic(fmt.Sprintf("model: input of the function: %v", err)) // a string
	}

	return graph.CanonicalJSON(string(text))
}

// addFunctionRule adds the rule that triggers the function from time to time, and unless the
// manifest has only SNS for that, when Auto Scaling has launched or terminated a machine of the
// control plane. When a stack is deleted, the rule goes before the invocation, so that the function
// does not create records again that it has deleted. It returns the permission, from which on the
// function is triggered.
func addFunctionRule(
	b *builder,
	function graph.Ref[awskind.LambdaFunction],
	invocation graph.Ref[awskind.LambdaInvocation],
) graph.Ref[awskind.LambdaPermission] {
	var pattern graph.JSON
	if slices.Contains(b.Cluster.Spec.Etcd.DiscoveryEvents, v1alpha1.EtcdEventsEventBridge) {
		pattern = groupEvents(b)
	}

	rule := graph.Add(b.graph, functionName, awskind.EventRule{
		Name:        FunctionName(b.clusterName()),
		Description: "Machines of the control plane of the Kubernetes cluster " + b.clusterName(),
		Pattern:     pattern,
		Schedule:    functionResync,
		State:       "ENABLED",
		Targets:     []awskind.EventTarget{{ID: functionTarget, ARN: function.Attr("Arn")}},
		Tags:        b.resourceTags(awskind.EventRule{}.Kind(), functionName, nil),
	}, invocation)

	return graph.Add(b.graph, functionName, awskind.LambdaPermission{
		Function:  function,
		Action:    "lambda:InvokeFunction",
		Principal: awskind.PrincipalEventBridge,
		SourceARN: rule.Attr("Arn"),
	})
}

// groupEvents returns the pattern of the events of the Auto Scaling groups of the control plane.
func groupEvents(b *builder) graph.JSON {
	groups := []string{}
	for _, ig := range b.groupsByRole(v1alpha1.RoleControlPlane) {
		for i := range ig.Spec.MinMachines() {
			groups = append(groups, SlotGroupName(b.clusterName(), ig.Metadata.Name, string(rune('a'+i))))
		}
	}

	text, err := json.Marshal(map[string]any{
		"source":      []string{"aws.autoscaling"},
		"detail-type": []string{"EC2 Instance Launch Successful", "EC2 Instance Terminate Successful"},
		"detail":      map[string]any{"AutoScalingGroupName": groups},
	})
	if err != nil {
		panic(fmt.Sprintf("model: event pattern: %v", err)) // strings and lists of strings only
	}

	return graph.CanonicalJSON(string(text))
}

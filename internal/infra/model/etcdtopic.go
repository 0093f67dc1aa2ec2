// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// The names of what triggers the function by SNS.
const (
	// topicPermissionName is the name, in the graph, of the permission of SNS.
	topicPermissionName = functionName + "-sns"
	// scalingRole is the path of the service-linked roles with which Auto Scaling publishes
	// notifications. The account may not have one yet, so the policy of the topic does not name it as
	// a principal.
	scalingRole = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling*"
)

// The types of the notifications that trigger the function. Auto Scaling sends a test notification
// besides.
const (
	launchNotification    = "autoscaling:EC2_INSTANCE_LAUNCH"
	terminateNotification = "autoscaling:EC2_INSTANCE_TERMINATE"
)

// UsesEtcdTopic reports whether notifications to a topic trigger the function that keeps the
// records of etcd's members.
func UsesEtcdTopic(c v1alpha1.ClusterSpec) bool {
	return UsesEtcdDNS(c) && slices.Contains(c.Etcd.DiscoveryEvents, v1alpha1.EtcdEventsSNS)
}

// TopicARN returns the ARN of the topic that triggers the function of a cluster. The topic has the
// function's name.
func TopicARN(partition, region, account, function string) string {
	return "arn:" + partition + ":sns:" + region + ":" + account + ":" + function
}

// addFunctionTopic adds the topic to which the groups of the control plane send notifications, and
// subscribes the function to it. The subscription is deleted before the invocation, so that the
// function does not create records again that it has deleted.
func addFunctionTopic(
	b *builder,
	function graph.Ref[awskind.LambdaFunction],
	invocation graph.Ref[awskind.LambdaInvocation],
) {
	topic := graph.Add(b.graph, functionName, awskind.SNSTopic{
		Name:   FunctionName(b.clusterName()),
		Policy: awskind.TopicPolicy{Document: topicPolicy(b)},
		Tags:   b.resourceTags(awskind.SNSTopic{}.Kind(), functionName, nil),
	})

	permission := graph.Add(b.graph, topicPermissionName, awskind.LambdaPermission{
		Function:  function,
		Action:    "lambda:InvokeFunction",
		Principal: awskind.PrincipalSNS,
		SourceARN: topic.Attr("TopicArn"),
	})

	subscription := graph.Add(b.graph, functionName, awskind.SNSSubscription{
		Topic:    topic,
		Protocol: "lambda",
		Endpoint: function.Attr("Arn"),
	}, permission, invocation)

	b.etcdEvents = append(b.etcdEvents, subscription)
	b.etcdNotifications = []awskind.GroupNotification{{
		Topic: topic,
		Types: []string{launchNotification, terminateNotification},
	}}
}

// topicPolicy lets Auto Scaling publish, which its own role is allowed too. It replaces the policy
// that AWS gives to a topic without one: with that, everybody in the account may publish,
// subscribe, and delete the topic.
func topicPolicy(b *builder) graph.JSON {
	iam := "arn:" + b.Partition + ":iam::" + b.Account + ":"

	return policyDocument(policyStatement{
		ID:        "AutoScaling",
		Principal: policyPrincipal{"AWS": iam + "root"},
		Actions:   []string{"sns:Publish"},
		Resources: []string{TopicARN(b.Partition, b.Region, b.Account, FunctionName(b.clusterName()))},
		Condition: policyCondition{"ArnLike": {"aws:PrincipalArn": iam + scalingRole}},
	})
}

// SPDX-License-Identifier: Apache-2.0

package iampolicy

// topicARN returns the ARN of the topic that triggers the function.
func (s policyBuilder) topicARN() string { return s.regionalARN("sns", s.Function) }

// topicReadStatements allows reading the topic, its subscriptions, and the notifications of Auto
// Scaling groups.
func (s policyBuilder) topicReadStatements() []Statement {
	return []Statement{
		newStatement(
			"ReadTopic",
			qualifyActions("sns", "GetTopicAttributes", "ListSubscriptionsByTopic", "ListTagsForResource"),
			[]string{s.topicARN()},
			nil,
		),
		newStatement(
			"ReadNotifications",
			qualifyActions("autoscaling", "DescribeNotificationConfigurations"), // it has no resources
			[]string{"*"},
			nil,
		),
	}
}

// topicStatements allows managing the topic that triggers the function, and subscribing the
// function to it. Groups may send notifications to it by the statements about groups.
func (s policyBuilder) topicStatements() []Statement {
	if !s.HasTopic {
		return nil
	}

	subscribe := stringEquals("sns:Protocol", "lambda")
	subscribe["StringEquals"]["sns:Endpoint"] = []string{s.functionARN()}

	return []Statement{
		newStatement(
			"ChangeTopic",
			qualifyActions(
				"sns", "CreateTopic", "DeleteTopic", "SetTopicAttributes", "TagResource", "Unsubscribe", "UntagResource",
			),
			[]string{s.topicARN()},
			nil,
		),
		newStatement("SubscribeFunction", qualifyActions("sns", "Subscribe"), []string{s.topicARN()}, subscribe),
	}
}

// topicStackStatements allows what CloudFormation reads of a topic and of a subscription besides.
func (s policyBuilder) topicStackStatements(viaCloudFormation condition) []Statement {
	if !s.HasTopic {
		return nil
	}

	return []Statement{
		newStatement(
			"ReadTopicForStack",
			qualifyActions("sns", "GetDataProtectionPolicy", "GetSubscriptionAttributes"),
			[]string{s.topicARN()},
			viaCloudFormation,
		),
	}
}

package journal

// For tests of package journal_test.
const (
	KeptRecords      = keptRecords
	UnreadableSuffix = unreadableSuffix
)

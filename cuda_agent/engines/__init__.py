"""Who answers: language models behind two small interfaces, one of token ids and one of messages."""
